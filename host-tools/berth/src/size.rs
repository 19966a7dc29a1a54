// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes on the command line and in reports.

/// Reads `65536`, `64K`, `4M`, `1G` (powers of 1024).
pub fn parse(s: &str) -> Result<u64, String> {
    let (digits, factor) = match s.char_indices().last() {
        Some((at, 'k' | 'K')) => (&s[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&s[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&s[..at], 1 << 30),
        _ => (s, 1u64),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| format!("`{s}` is not a size such as 65536, 64K or 4M"))
}

/// As [`parse`], for sizes in memory.
pub fn parse_usize(s: &str) -> Result<usize, String> {
    usize::try_from(parse(s)?).map_err(|e| e.to_string())
}

/// `4.0 MiB`, `17 B`.
pub fn show(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit)
        .map_or_else(|| format!("{bytes} B"), |(name, unit)| format!("{:.1} {name}", bytes as f64 / *unit as f64))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("64K"), Ok(65536));
        assert_eq!(parse("4m"), Ok(4 << 20));
        assert!(parse("").is_err());
        assert!(parse("K").is_err());
        assert!(parse("-1").is_err());
        assert!(parse("99999999999G").is_err());
        assert_eq!(show(17), "17 B");
        assert_eq!(show(4 << 20), "4.0 MiB");
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
