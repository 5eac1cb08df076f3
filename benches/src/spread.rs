//! How results spread over many shapes: quantiles, and the worst with their reasons.

use std::fmt::Write;

use crate::rows::{OURS, Row};

/// Rows that are named.
const WORST: usize = 10;

/// A row's speed beside a peer's.
struct Beside<'a> {
    ours: &'a Row,
    peer: &'a Row,
    /// The peer's median time over ours.
    ratio: f64,
}

/// The row of a choice, by name and shape, and what the program says of it.
pub type Reason = (String, String, String);

/// Of each peer, by kernel and for all: geometric mean and quantiles of its time over ours. Then our slowest
/// rows beside each peer. Empty without peers.
pub fn spread(rows: &[Row], reasons: &[Reason]) -> String {
    let mut peers: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.program != OURS) {
        if !peers.contains(&row.program.as_str()) {
            peers.push(&row.program);
        }
    }
    let mut text = String::new();
    for peer in peers {
        let mut all = beside(rows, peer);
        all.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let _ = writeln!(
            text,
            "\n{:<24} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            format!("time of {peer} over ours"),
            "rows",
            "mean",
            "lowest",
            "5 %",
            "25 %",
            "50 %",
            "95 %"
        );
        let mut names: Vec<&str> = Vec::new();
        for Beside { ours, .. } in &all {
            if !names.contains(&ours.name.as_str()) {
                names.push(&ours.name);
            }
        }
        names.sort_unstable();
        for name in names {
            let of_name = all.iter().filter(|beside| beside.ours.name == name);
            line(&mut text, name, &of_name.map(|beside| beside.ratio).collect::<Vec<_>>());
        }
        line(&mut text, "all", &all.iter().map(|beside| beside.ratio).collect::<Vec<_>>());
        let _ = writeln!(text, "lowest:");
        for Beside { ours, peer, ratio } in all.iter().take(WORST) {
            let reason = reasons.iter().find(|(name, shape, _)| *name == ours.name && *shape == ours.shape);
            let _ = writeln!(
                text,
                "  {ratio:.3}  {} {}: {:.1} us, {} {:.1} us; {}",
                ours.name,
                ours.shape,
                1e3 * ours.quantile(0.5),
                peer.program,
                1e3 * peer.quantile(0.5),
                reason.map_or("", |(_, _, text)| text)
            );
        }
    }
    text
}

fn beside<'a>(rows: &'a [Row], peer: &str) -> Vec<Beside<'a>> {
    let ours = rows.iter().filter(|row| row.program == OURS);
    ours.filter_map(|ours| {
        let is_its = |row: &&Row| row.program == peer && row.name == ours.name && row.shape == ours.shape;
        let peer = rows.iter().find(is_its)?;
        Some(Beside { ours, peer, ratio: peer.quantile(0.5) / ours.quantile(0.5) })
    })
    .collect()
}

/// A line of the table; the ratios ascend.
fn line(text: &mut String, name: &str, ratios: &[f64]) {
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let quantile = |part: f64| ratios[((ratios.len() - 1) as f64 * part).round() as usize];
    let _ = write!(text, "{name:<24} {:>5} {mean:>8.3}", ratios.len());
    for part in [0.0, 0.05, 0.25, 0.5, 0.95] {
        let _ = write!(text, " {:>8.3}", quantile(part));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::spread;
    use crate::rows::{OURS, Row, Work};

    #[test]
    fn quantiles_and_the_worst() {
        let row = |program: &str, name: &str, shape: &str, ms: f64| Row {
            program: program.into(),
            name: name.into(),
            shape: shape.into(),
            work: Work::Flops(1),
            samples: vec![(1, ms)],
        };
        let mut rows = Vec::new();
        for (index, ours) in [1.0, 2.0, 4.0].into_iter().enumerate() {
            rows.push(row(OURS, "a", &format!("{index}"), ours));
            rows.push(row("peer", "a", &format!("{index}"), 2.0));
        }
        rows.push(row(OURS, "b", "0", 1.0));
        let reasons = [("a".to_owned(), "2".to_owned(), "too few tiles".to_owned())];
        let text = spread(&rows, &reasons);
        let numbers = |name: &str| -> Vec<f64> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect()
        };
        assert_eq!(numbers("a "), [3.0, 1.0, 0.5, 0.5, 1.0, 1.0, 2.0]);
        assert_eq!(numbers("all "), numbers("a "));
        assert!(!text.contains("\nb "), "no peer: {text}");
        let worst = text.lines().position(|line| line == "lowest:").unwrap();
        let first = text.lines().nth(worst + 1).unwrap();
        assert_eq!(first, "  0.500  a 2: 4000.0 us, peer 2000.0 us; too few tiles");
        assert_eq!(spread(&rows[..1], &[]), "");
    }
}
