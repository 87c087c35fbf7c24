//! File systems of the database: a full disk, a read-only mount.

use super::{Done, Trial, count, insert, open};
use rustix::mount::{MountFlags, mount_remount};
use std::fs;
use std::io::Write;

/// Large enough for an ext4 with a database and two parts of a log.
const BYTES: u64 = 48 << 20;

pub fn full_disk(trial: &mut Trial) -> Done {
    let image = trial.image(BYTES)?;
    let path = image.root().join("a.db");
    let connection = trial.make(&path, 10)?;
    connection.execute_batch("PRAGMA wal_autocheckpoint=0")?;
    let ballast = image.root().join("ballast");
    let mut file = fs::File::create(&ballast)?;
    while file.write_all(&[7; 4096]).is_ok() {}
    drop(file);
    let mut rows = 10;
    let mut refused = 0;
    for _ in 0..40 {
        super::sqlite::take_log();
        let large = connection.execute(
            "INSERT INTO t SELECT randomblob(1000000) FROM (SELECT 1 UNION SELECT 2)",
            [],
        );
        let code = trial.code(&large);
        match code {
            0 => rows += 2,
            _ => {
                refused += 1;
                let log = super::sqlite::take_log().join("; ");
                trial.expect(code & 0xff == 13, format!("a full disk is {code}: {log}"));
                let found = count(&connection)?;
                trial.expect(found == rows, "a transaction that failed is there");
            }
        }
    }
    trial.expect(refused > 0, "the disk was never full");
    fs::remove_file(&ballast)?;
    insert(&connection, 1)?;
    drop(connection);
    trial.holds(&path, rows + 1)?;
    Ok(image.remove()?)
}

pub fn read_only_mount(trial: &mut Trial) -> Done {
    let image = trial.image(BYTES)?;
    let (rest, killed) = (image.root().join("rest.db"), image.root().join("killed.db"));
    drop(trial.make(&rest, 10)?);
    trial.make_killed(&killed, 10)?;
    fs::remove_file(killed.with_extension("live"))?;
    let remount = |flags| mount_remount(image.root(), flags, c"").map_err(std::io::Error::from);
    remount(MountFlags::RDONLY)?;
    for (path, has_log) in [(&rest, false), (&killed, true)] {
        let connection = open(path)?;
        let found = count(&connection);
        let code = trial.code(&found);
        match found {
            Ok(rows) => trial.expect(rows == 10, format!("{rows} rows on a read-only mount")),
            // A log cannot be recovered, and a wal-index cannot be made, on a mount that cannot be
            // written.
            Err(e) => trial.expect(
                matches!(code & 0xff, 8 | 14),
                format!("{}: {e} (a log: {has_log})", path.display()),
            ),
        }
        let written = insert(&connection, 1);
        let code = trial.code(&written);
        trial.expect(
            matches!(code & 0xff, 8 | 14),
            format!("writing to a read-only mount: {code}"),
        );
    }
    remount(MountFlags::empty())?;
    trial.holds(&rest, 10)?;
    trial.holds(&killed, 10)?;
    Ok(image.remove()?)
}
