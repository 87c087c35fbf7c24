//! Gives a fresh XFS the feature `exchange` (`XFS_SB_FEAT_INCOMPAT_EXCHRANGE`), without which
//! `XFS_IOC_EXCHANGE_RANGE` fails. `mkfs.xfs` has it from xfsprogs 6.10 on (`-i exchange=1`), the
//! kernel from 6.10 on. On disk it changes only one bit of each superblock and its checksum. The
//! feature says that the log may hold exchange items.
//!
//! Each allocation group begins with a superblock. Integers are big-endian. The CRC-32C of the
//! sector, with zeros in its own place, is little-endian (xfs_format.h).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;

const MAGIC: &[u8; 4] = b"XFSB";
const BLOCK_SIZE_AT: usize = 4;
const GROUP_BLOCKS_AT: usize = 84;
const GROUPS_AT: usize = 88;
const SECTOR_SIZE_AT: usize = 102;
const INCOMPATIBLE_AT: usize = 216;
const CRC_AT: usize = 224;
const EXCHANGE: u32 = 1 << 6;
/// No scratch file system has more allocation groups.
const MOST_GROUPS: u32 = 1 << 16;

/// Whether this kernel mounts an XFS with the feature.
fn kernel_knows() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(10))
}

/// Sets the feature on an unmounted file system, if the kernel supports it.
pub fn enable(target: &Path) -> Result<(), Error> {
    if !kernel_knows() {
        return Ok(());
    }
    let open = File::options().read(true).write(true).open(target);
    let file = open.map_err(Error::io("open", target))?;
    enable_in(&file).map_err(Error::io("set the feature exchange on", target))
}

fn enable_in(file: &File) -> io::Result<()> {
    let mut first = [0; 512];
    file.read_exact_at(&mut first, 0)?;
    if &first[..4] != MAGIC {
        return Err(io::Error::other("it is no XFS"));
    }
    let group = u64::from(be32(&first, BLOCK_SIZE_AT)) * u64::from(be32(&first, GROUP_BLOCKS_AT));
    let sector = usize::from(u16::from_be_bytes([
        first[SECTOR_SIZE_AT],
        first[SECTOR_SIZE_AT + 1],
    ]));
    for number in 0..be32(&first, GROUPS_AT).min(MOST_GROUPS) {
        let mut block = vec![0; sector.clamp(512, 32_768)];
        file.read_exact_at(&mut block, u64::from(number) * group)?;
        set(&mut block)?;
        file.write_all_at(&block, u64::from(number) * group)?;
    }
    file.sync_all()
}

fn set(sector: &mut [u8]) -> io::Result<()> {
    let found: [u8; 4] = [0, 1, 2, 3].map(|i| sector[CRC_AT + i]);
    sector[CRC_AT..CRC_AT + 4].fill(0);
    if &sector[..4] != MAGIC || crc32c::crc32c(sector).to_le_bytes() != found {
        return Err(io::Error::other("a superblock is damaged"));
    }
    let features = be32(sector, INCOMPATIBLE_AT) | EXCHANGE;
    sector[INCOMPATIBLE_AT..INCOMPATIBLE_AT + 4].copy_from_slice(&features.to_be_bytes());
    let crc = crc32c::crc32c(sector);
    sector[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
