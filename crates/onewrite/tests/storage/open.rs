//! Opening, creating and losing files.

use super::*;

#[test]
fn a_new_file_gets_its_permissions_whatever_the_umask() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let new = NewFile {
        mode: 0o666,
        owner: None,
    };
    LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto).expect("a file");
    let mode = std::fs::metadata(&path)
        .expect("metadata")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o666);
    let again = LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto);
    assert_eq!(
        again.expect_err("it exists").kind(),
        std::io::ErrorKind::AlreadyExists
    );
    if rustix::process::geteuid().is_root() {
        let path = directory.path().join("owned");
        let new = NewFile {
            mode: 0o600,
            owner: Some((12, 34)),
        };
        LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto).expect("a file");
        let metadata = std::fs::metadata(&path).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
    }
}

#[test]
fn what_is_no_log_file_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let open = |name: &str, create, access| {
        let error = LogFile::open(&at(name), create, access, DirectIo::Auto).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
        error
    };
    assert!(open("missing", Create::Never, Access::ReadWrite).is_not_found());
    std::fs::create_dir(at("directory")).expect("a directory");
    open("directory", Create::Never, Access::ReadWrite);
    let error = open("directory", Create::Never, Access::ReadOnly);
    assert!(matches!(error, StorageError::NotAFile { .. }), "{error}");
    std::os::unix::fs::symlink(at("elsewhere"), at("link")).expect("a link");
    let error = open("link", NEW, Access::ReadWrite);
    assert!(error.to_string().contains("symbolic link"), "{error}");
    let mkfifo = Command::new("mkfifo")
        .arg(at("fifo"))
        .status()
        .expect("mkfifo");
    assert!(mkfifo.success());
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = open("fifo", Create::Never, access);
        assert!(matches!(error, StorageError::NotAFile { .. }), "{error}");
    }
}

#[test]
fn a_read_only_file_reads_and_locks_shared_and_refuses_the_rest() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    std::fs::write(&path, b"content").expect("a file");
    let file = LogFile::open(&path, Create::Never, Access::ReadOnly, DirectIo::Auto).expect("open");
    assert_eq!(read(&file, 3, 100), b"tent");
    let refused = [
        file.write_at(&[0; 4096], 0, Durability::None),
        file.write_buffered_at(&[0], 0),
        file.truncate(0),
        file.initialize(0..4096, Init::ZeroFill),
        file.lock(LockByte::Presence, LockKind::Exclusive, (MOMENT, &Short)),
        file.try_lock(LockByte::Presence, LockKind::Exclusive)
            .map(|_| ()),
    ];
    for result in refused {
        let error = result.expect_err("read-only");
        assert!(matches!(error, StorageError::ReadOnly { .. }), "{error:?}");
    }
    assert!(
        file.try_lock(LockByte::Presence, LockKind::Shared)
            .expect("a shared lock")
    );
    assert!(
        !file
            .is_locked_by_other(LockByte::Presence, LockKind::Exclusive)
            .expect("an answer")
    );
    assert_eq!(std::fs::read(&path).expect("a file"), b"content");
}

#[test]
fn a_deleted_or_replaced_file_is_noticed() {
    everywhere(|directory, direct| {
        let path = directory.join("log");
        let file = open(&path, direct);
        assert!(file.same_as_path().expect("an answer"));
        let metadata = std::fs::metadata(&path).expect("metadata");
        assert_eq!(
            file.identity().expect("identity"),
            (metadata.dev(), metadata.ino())
        );
        std::fs::rename(&path, directory.join("moved")).expect("a rename");
        assert!(!file.same_as_path().expect("an answer"));
        std::fs::File::create(&path).expect("another file");
        assert!(!file.same_as_path().expect("an answer"));
        sync_directory(&path).expect("a directory");
    });
    assert!(
        sync_directory(Path::new("/nonexistent/log"))
            .expect_err("missing")
            .is_not_found()
    );
}
