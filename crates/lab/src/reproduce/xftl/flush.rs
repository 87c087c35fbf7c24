//! The cost of a flush and of commit(t) by the size of the device, without host and file system.
//!
//! A flush of the plain FTL makes pages durable, and what the controller needs to find them. That
//! decides the ratio of X-FTL to a journal, so it stands alone here. Some pages anywhere on a new
//! device are written, then comes the flush. Counted is everything from the first of these pages
//! to the end of the flush, garbage collection never: a new device has none.

use onewrite_flash::ftl::{Config, Ftl, FtlError, Lpn, Tid};
use onewrite_flash::nand::Nand;
use onewrite_flash::random::Random;
use serde::Serialize;

use super::controllers::{Controller, Flush};
use super::nand::Nand as Chips;

/// Host sizes in MiB, of pages of 8 KiB. Beyond the last one the root does not hold the map's
/// pieces.
pub const SIZES: [u32; 5] = [84, 258, 1030, 4096, 8192];
/// The same of the board's virtual pages. The last one is the board's own size.
const VIRTUAL_SIZES: [u32; 5] = [1030, 4096, 8192, 32_768, 65_536];
/// Pages that are written before a flush.
const WRITTEN: [u32; 2] = [1, 5];
/// Percent of spare NAND.
const SPARE: u32 = 7;
/// Flushes: of others than the whole map so many that their journals and tables were full several
/// times. The whole map takes fewer. The first block on each plane is opened and erased in any case,
/// and takes hundreds of pages of the map. With too few flushes these erases would decide.
const FEW: u32 = 100;
const MANY: u32 = 600;

/// The mean cost of a flush, or of a commit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Pages programmed, without the host's.
    pub programs: f64,
    pub ms: f64,
}

/// The costs on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    pub host_mib: u32,
    pub page_kib: u32,
    pub controller: Controller,
    /// The host's pages before each flush.
    pub pages: u32,
    pub flush: Cost,
    /// commit(t) of as many pages on the same device.
    pub commit: Cost,
}

/// Costs by size and FTL; of these sizes if any are given.
pub fn costs(sizes: &[u32], controllers: &[Controller], seed: u64) -> Result<Vec<Costs>, String> {
    let usual = if sizes.is_empty() { &SIZES } else { sizes };
    let of = |sizes: &[u32], controllers: &[Controller]| -> Vec<(u32, Controller)> {
        let sizes = sizes.iter();
        let all = sizes.flat_map(|size| controllers.iter().map(move |one| (*size, *one)));
        all.collect()
    };
    let mut devices = of(usual, controllers);
    let is_board = |one: &&Controller| one.nand == Chips::Board && one.flush == Flush::Whole;
    let board = controllers.iter().filter(is_board);
    if let (true, Some(board)) = (sizes.is_empty(), board.into_iter().next()) {
        devices.extend(of(&VIRTUAL_SIZES, &[board.on(Chips::Board32k)]));
    }
    let each = devices
        .into_iter()
        .flat_map(|device| WRITTEN.map(|pages| (device, pages)));
    each.map(|((size, controller), pages)| cost(size, controller, pages, seed))
        .collect()
}

fn cost(host_mib: u32, controller: Controller, pages: u32, seed: u64) -> Result<Costs, String> {
    let shape = controller.shape(host_mib, SPARE)?;
    let (nand, config) = shape.make()?;
    let page_kib = nand.geometry().page_bytes >> 10;
    let few = controller.flush == Flush::Whole;
    let text = |error: FtlError| format!("{host_mib} MiB, {}: {error}", controller.name());
    let flush = mean(
        nand.clone(),
        config,
        pages,
        if few { FEW } else { MANY },
        seed,
        |ftl, lpns| {
            lpns.iter()
                .try_for_each(|lpn| ftl.write(*lpn, &page(ftl, *lpn)))?;
            ftl.flush()
        },
    );
    let commit = mean(nand, config, pages, MANY, seed, |ftl, lpns| {
        let write = |lpn: &Lpn| ftl.write_in(Tid(1), *lpn, &page(ftl, *lpn));
        lpns.iter().try_for_each(write)?;
        ftl.commit(Tid(1))
    });
    Ok(Costs {
        host_mib,
        page_kib,
        controller,
        pages,
        flush: flush.map_err(text)?,
        commit: commit.map_err(text)?,
    })
}

fn page(ftl: &Ftl, lpn: Lpn) -> Vec<u8> {
    vec![lpn.0 as u8; ftl.page_bytes() as usize]
}

/// The mean of `times` works on a new device, each with other pages anywhere.
fn mean(
    nand: Nand,
    config: Config,
    pages: u32,
    times: u32,
    seed: u64,
    mut work: impl FnMut(&mut Ftl, &[Lpn]) -> Result<(), FtlError>,
) -> Result<Cost, FtlError> {
    let (mut ftl, _) = Ftl::open(nand, config)?;
    let mut random = Random::new(seed);
    let (programs, begin) = (ftl.nand().operations().programs, ftl.nand().now().0);
    for _ in 0..times {
        let some = (0..pages).map(|_| Lpn(random.below(config.logical_pages as usize) as u32));
        let lpns: Vec<Lpn> = some.collect();
        work(&mut ftl, &lpns)?;
    }
    let programs = ftl.nand().operations().programs - programs - u64::from(times * pages);
    let ns = ftl.nand().now().0 - begin;
    Ok(Cost {
        programs: programs as f64 / f64::from(times),
        ms: ns as f64 / 1e6 / f64::from(times),
    })
}

#[cfg(test)]
mod tests {
    use super::super::controllers::{BOARD, Ftl as Named};
    use super::*;

    /// 5 pieces of the map at 80 MiB, and 64 at 1 GiB.
    #[test]
    fn a_whole_map_costs_a_program_for_each_16_mib_and_other_flushes_do_not_grow() {
        let ftls = Named::ALL.map(Named::controller);
        let costs = costs(&[80, 1024], &ftls, 1).unwrap();
        let of = |host_mib, controller, pages| {
            let is_it = |one: &&Costs| {
                (one.host_mib, one.controller, one.pages) == (host_mib, controller, pages)
            };
            costs.iter().find(is_it).unwrap()
        };
        let [striped, one_die, changed, journal, nothing] = ftls;
        for (mib, pieces) in [(80, 5.0), (1024, 64.0)] {
            for whole in [striped, one_die] {
                assert_eq!(of(mib, whole, 5).flush.programs, pieces + 1.0, "{mib}");
            }
            assert_eq!(of(mib, changed, 1).flush.programs, 2.0);
            // The root alone, and pieces when it is full.
            assert!((1.0..2.0).contains(&of(mib, journal, 5).flush.programs));
            assert!(of(mib, nothing, 5).flush.programs < 1.0);
            assert!((1.0..2.0).contains(&of(mib, nothing, 5).commit.programs));
        }
        // 64 pages on one die, or on eight.
        let (one, eight) = (of(1024, one_die, 5).flush.ms, of(1024, striped, 5).flush.ms);
        assert!((4.0..8.0).contains(&(one / eight)), "{one} {eight}");
        let growth = |controller| of(1024, controller, 5).flush.ms / of(80, controller, 5).flush.ms;
        assert!(growth(one_die) > 5.0 && growth(journal) < 1.5 && growth(nothing) < 1.5);
    }

    /// 64 pages on eight dies, of a device that is too large to collect garbage.
    #[test]
    fn parts_of_the_device_change_what_a_flush_costs() {
        use super::super::controllers::Parts;
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            parts: Parts,
        }
        let ms_and_programs = |words: &[&str]| {
            let words = [&["x"], words].concat();
            let controller = Named::Changed
                .controller()
                .with(Only::parse_from(words).parts);
            let cost = cost(1030, controller, 64, 1).unwrap();
            (cost.flush.ms, cost.flush.programs)
        };
        let usual = ms_and_programs(&[]);
        let planes = ms_and_programs(&["--planes", "2"]);
        assert!(planes.0 < usual.0 * 0.9, "{planes:?} {usual:?}");
        let cache = ms_and_programs(&["--map-cache", "64"]);
        assert!(cache.0 > usual.0 * 1.1, "{cache:?} {usual:?}");
        let paired = ms_and_programs(&["--paired-pages"]);
        assert!(paired.1 > usual.1 + 1.0, "{paired:?} {usual:?}");
    }

    #[test]
    fn the_board_s_own_size_can_be_had() {
        let cost = cost(65_536, BOARD.on(Chips::Board32k), 1, 1).unwrap();
        // 256 virtual pages of the map, as the board's constants say, and the root.
        assert_eq!((cost.flush.programs, cost.page_kib), (257.0, 32));
    }
}
