//! Records of what happened: the kernel's trace, and the record of a power cut.

use onewrite_iotrace::{format::Format, ring};

use crate::bytes::Bytes;
use crate::change::overwrite;

/// A sub-buffer of the kernel's trace, and the description of an event.
pub fn trace(data: &[u8]) {
    let mut input = Bytes::new(data);
    let is_text = input.byte().is_multiple_of(4);
    let mends = input.byte() & 1 == 1;
    let mut bytes = input.rest().to_vec();
    if is_text {
        let (text, record) = bytes.split_at(bytes.len() * 3 / 4);
        let format = Format::parse(&String::from_utf8_lossy(text));
        for name in ["common_type", "dev", "sector", "rwbs", "name"] {
            let field = format.as_ref().and_then(|format| format.field(name));
            if let Some(field) = field {
                assert!(field.bytes(record).len() <= record.len());
                assert!(field.located(record).len() <= record.len());
                let _ = field.number(record);
            }
        }
        return;
    }
    if mends && bytes.len() >= 16 {
        let length = (bytes.len() - 16) as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..16].fill(0);
    }
    if let Ok(parsed) = ring::parse(&bytes) {
        let records: usize = parsed.events.iter().map(|event| event.record.len()).sum();
        assert!(records <= bytes.len(), "every byte is read once");
    }
}

/// A record of a power cut.
pub fn history(data: &[u8]) {
    let mut bytes = data.to_vec();
    if bytes.pop().is_some_and(|last| last & 1 == 1) {
        overwrite(&mut bytes, 0, b"OWFLASH1");
    }
    let Ok((image, history)) = onewrite_flash::saved::parse(&bytes) else {
        return;
    };
    let blocks = image.blocks().count();
    assert!(blocks * onewrite_flash::image::BLOCK <= bytes.len());
    assert!(history.events().len() * 16 <= bytes.len());
    // A replay cuts the record. It cuts a range sector by sector, so its time grows with the medium
    // and the events.
    if image.bytes() > 1 << 20 || history.events().len() > 100 {
        return;
    }
    let mut cutter = onewrite_flash::cut::Cutter::new(image, &history);
    cutter.advance(history.end());
    let crash = cutter.crash(1, onewrite_flash::cut::Tear::Sectors);
    let mut head = [0; 512];
    crash.image.read(0, &mut head);
}
