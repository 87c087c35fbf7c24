//! The usual device, command for command: what is a choice changes nothing until it is chosen.

use super::{Config, CopiesGo, FlushWrites, Ftl, Lpn, MapGoes, Tid};
use crate::nand::timing::Timing;
use crate::nand::{Geometry, Nand};
use crate::random::Random;

/// Reads, programs, erases and nanoseconds of the same commands on a device in use.
fn work(like: Config) -> [u64; 4] {
    let geometry = Geometry {
        page_bytes: 512,
        pages_per_block: 16,
        ..Geometry::openssd(96)
    };
    let geometry = geometry.with_channels(2, 2);
    let config = Config::with_spare(&geometry, 20, like).unwrap();
    let nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
    let (mut ftl, _) = Ftl::open(nand, config).unwrap();
    let mut random = Random::new(5);
    let pages = ftl.pages() as usize;
    for n in 0..12_000 {
        let within = if random.percent(80) { pages / 5 } else { pages };
        let lpn = Lpn(random.below(within) as u32);
        match random.below(20) {
            0 => ftl.trim(lpn).unwrap(),
            1..5 => drop(ftl.read(lpn).unwrap()),
            _ => ftl.write(lpn, &[n as u8; 512]).unwrap(),
        }
        if n % 15 == 0 {
            ftl.flush().unwrap();
        }
        if n % 40 == 0 {
            for lpn in 0..4 {
                ftl.write_in(Tid(1), Lpn(lpn * 50), &[n as u8; 512])
                    .unwrap();
            }
            ftl.commit(Tid(1)).unwrap();
        }
    }
    let (mut ftl, _) = Ftl::open(ftl.into_nand(), config).unwrap();
    ftl.read(Lpn(0)).unwrap();
    let done = ftl.nand().operations();
    [done.reads, done.programs, done.erases, ftl.nand().now().0]
}

/// The figures were measured before there were other choices than these.
#[test]
fn the_usual_device_works_as_before_there_were_choices() {
    let like = Config {
        table_capacity: 40,
        wear_gap: 8,
        ..Config::new(0)
    };
    let board = Config {
        flush: FlushWrites::WholeMap,
        copies: CopiesGo::AmongHost,
        map: MapGoes::Striped,
        ..like
    };
    let journal = Config {
        flush: FlushWrites::Journal,
        ..like
    };
    let expected = [
        [6_476, 15_152, 951, 9_482_156_758],
        [7_808, 24_033, 1_507, 13_728_292_506],
        [6_258, 18_446, 1_159, 13_999_937_340],
    ];
    assert_eq!([like, board, journal].map(work), expected);
}
