//! Random devices for the test with a model.

use crate::ftl::flaw::Flaw;
use crate::ftl::{CollectsBy, Config, CopiesGo, FlushWrites, MapGoes, Scrub};
use crate::nand::{BitErrors, Geometry};
use crate::random::Random;

/// The parameters of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Make {
    pub(super) geometry: Geometry,
    pub(super) config: Config,
    /// One in this many programs and erases fails; 0 is none.
    pub(super) fail_one_in: u64,
    /// Wrong bits in 10^9 for each read of a page's block; 0 is none.
    pub(super) per_read: u32,
    /// Requests in flight.
    pub(super) depth: usize,
    pub(super) flaw: Option<Flaw>,
}

impl Make {
    /// Its bit errors, if there are any.
    pub(super) fn errors(&self) -> Option<BitErrors> {
        (self.per_read > 0).then(|| BitErrors {
            corrects: 40,
            per_erase: 0.0,
            per_read: f64::from(self.per_read),
            per_day: 0.0,
        })
    }

    /// Whether the FTL can move all blocks before their bit errors are too many, if the power goes
    /// after up to `between` operations each time. This is an estimate. The weakest page can be read
    /// 3,340,000 / `per_read` times, and the last 70 % of these reads are left when its block is due.
    /// A cut comes with two or three reads of each page. A page that is moved takes eight operations,
    /// those for the commands and for garbage collection included.
    pub(super) fn has_time(&self, between: usize) -> bool {
        let reads = u64::from(2_340_000_u32.checked_div(self.per_read).unwrap_or(u32::MAX));
        let cuts = reads * 2 / (u64::from(self.geometry.pages_per_block) * 5);
        let operations = cuts * between as u64 / 2;
        operations >= 8 * u64::from(self.geometry.pages())
    }

    /// A random device, small and as full as possible, so that garbage collection runs all the
    /// time.
    pub(super) fn random(random: &mut Random) -> Self {
        loop {
            if let Some(make) = Self::draw(random) {
                return make;
            }
        }
    }

    /// `None` if so small a device has no room left for the host.
    fn draw(random: &mut Random) -> Option<Self> {
        let pairs = random.percent(25);
        let geometry = Geometry {
            page_bytes: 256,
            pages_per_block: if pairs {
                32
            } else {
                [4, 8, 16][random.below(3)]
            },
            blocks_per_plane: 1,
            planes_per_die: [1, 1, 2][random.below(3)],
            dies_per_channel: 1 + random.below(2) as u32,
            channels: 1 + random.below(2) as u32,
        };
        let fail_one_in = [0, 0, 1000, 100][random.below(4)];
        let capacity = [12, 25, 40][random.below(3)];
        // More open blocks and larger ones need more room.
        let more = geometry.planes_per_die * if pairs { 4 } else { 1 };
        let pages = (640 + random.below(200) as u32) * more;
        let per_die =
            pages.div_ceil(geometry.pages_per_block * geometry.dies() * geometry.planes_per_die);
        let geometry = Geometry {
            // The root has room for the pieces of the map.
            page_bytes: if more > 1 { 1024 } else { 256 },
            blocks_per_plane: per_die,
            ..geometry
        };
        let per_read = [300, 3_000, 0, 0, 0, 0][random.below(6)];
        let spare = if fail_one_in > 0 { 70 } else { 0 };
        let like = Config {
            table_capacity: capacity,
            checkpoint_every: [50, 400, 1_000_000][random.below(3)],
            wear_gap: [3, 1000][random.below(2)],
            flush: [
                FlushWrites::Nothing,
                FlushWrites::Map,
                FlushWrites::WholeMap,
                FlushWrites::Journal,
            ][random.below(4)],
            copies: [CopiesGo::Apart, CopiesGo::AmongHost][random.below(2)],
            map: [MapGoes::OneDie, MapGoes::Striped][random.below(2)],
            scrub: [
                Scrub::default(),
                Scrub {
                    percent: 30,
                    reads: 500,
                },
            ][usize::from(per_read > 0)],
            pairs,
            cached_entries: [0, 0, 9, 70][random.below(4)],
            collects: [CollectsBy::Greedy, CollectsBy::CostBenefit][random.below(2)],
            // Not drawn: seeds that show a flaw early stay what they are.
            gc_ahead: [Config::GC_AHEAD, Config::GC_AHEAD, 0, 16][per_die as usize % 4],
            ..Config::new(0)
        };
        let config = Config::with_spare(&geometry, spare, like).ok()?;
        Some(Self {
            geometry,
            config,
            fail_one_in,
            per_read,
            depth: [1, 4][random.below(2)],
            flaw: None,
        })
    }
}
