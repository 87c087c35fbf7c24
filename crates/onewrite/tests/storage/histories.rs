//! Random histories against a model.

use super::random::{Random, seed};
use super::*;

/// The content that the file must hold.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).expect("a small offset");
        let end = start + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[start..end].copy_from_slice(bytes);
    }
}

fn random_step(random: &mut Random, files: &[LogFile], model: &mut Model) {
    let file = &files[random.below(files.len() as u64) as usize];
    let block = random.below(64) * 4096;
    let any = random.below(64 * 4096);
    let salt = random.below(256) as u8;
    match random.below(10) {
        0..4 => {
            let data = pattern((1 + random.below(8) as usize) * 4096, salt);
            let durability = [Durability::None, Durability::WriteThrough];
            let durability = durability[random.below(2) as usize];
            file.write_at(&data, block, durability).expect("a write");
            model.write(block, &data);
        }
        4..6 => {
            let data = pattern(1 + random.below(9000) as usize, salt);
            file.write_buffered_at(&data, any).expect("a write");
            model.write(any, &data);
        }
        6 => {
            let (start, len) = if random.below(2) == 0 {
                (block, random.below(16) * 4096)
            } else {
                (any, random.below(60_000))
            };
            file.initialize(start..start + len, Init::ZeroFill)
                .expect("a preallocation");
            if len > 0 {
                model.write(start, &vec![0; len as usize]);
            }
        }
        7 => {
            file.truncate(any).expect("a truncation");
            model.0.resize(any as usize, 0);
        }
        8 => file.flush().expect("a flush"),
        _ => {
            let len = random.below(20_000);
            let start = (any as usize).min(model.0.len());
            let end = (any + len).min(model.0.len() as u64) as usize;
            assert_eq!(
                read(file, any, len as usize),
                model.0[start..end.max(start)]
            );
        }
    }
    assert_eq!(file.size().expect("a size"), model.0.len() as u64);
}

#[test]
fn random_histories_of_two_open_files_read_as_one_array_of_bytes() {
    let random = std::cell::RefCell::new(Random::new(seed("random histories")));
    everywhere(|directory, direct| {
        let path = directory.join("log");
        let files = [open(&path, direct), open(&path, DirectIo::Never)];
        let mut model = Model::default();
        for _ in 0..150 {
            random_step(&mut random.borrow_mut(), &files, &mut model);
        }
        for file in &files {
            assert!(read(file, 0, 1 << 20) == model.0, "{}", path.display());
        }
    });
}
