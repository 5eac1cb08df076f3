//! The SVG picture of a snapshot.

use std::fmt::Write;

use crate::snapshot::{BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};

/// In pixels: the width of the widest segment, the height of a row, and the width of the text beside it.
const WIDTH: f64 = 1000.0;
const ROW: usize = 22;
const LABEL: f64 = 250.0;
/// The least width of a block, in pixels.
const LEAST: f64 = 0.5;

fn colour(state: BlockState) -> &'static str {
    match state {
        BlockState::Free => "#e8e8e8",
        BlockState::Live => "#4878a8",
        BlockState::Pending => "#e0a030",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn title(block: &BlockSnapshot) -> String {
    let state = match block.state {
        BlockState::Free => "free",
        BlockState::Live => "live",
        BlockState::Pending => "pending",
    };
    let site = block.site.as_deref().map(|site| format!(" for {site}")).unwrap_or_default();
    escaped(&format!("{:#x}: {} bytes, {state}{site}", block.address, block.bytes))
}

fn row(svg: &mut String, place: usize, label: &str, segment: &SegmentSnapshot, per_byte: f64) {
    let (top, height) = (place * ROW, ROW - 4);
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">{}</text>", top + ROW - 8, escaped(label));
    for block in &segment.blocks {
        let x = LABEL + (block.address - segment.address) as f64 * per_byte;
        let width = (block.bytes as f64 * per_byte).max(LEAST);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{}\" stroke=\"#ffffff\" \
             stroke-width=\"0.3\"><title>{}</title></rect>",
            colour(block.state),
            title(block),
        );
    }
}

pub(crate) fn picture(snapshot: &Snapshot) -> String {
    let segments = || snapshot.heaps.iter().flat_map(|heap| heap.segments.iter().map(move |s| (heap, s)));
    let widest = segments().map(|(_, segment)| segment.bytes).max().unwrap_or(1);
    let per_byte = WIDTH / widest as f64;
    let (width, height) = (LABEL + WIDTH, (segments().count() + 1) * ROW);
    let stats = &snapshot.stats;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"11\">\n<text x=\"4\" y=\"{}\">reserved {:.1} MiB: live {:.1}, pending {:.1}, free {:.1} (largest {:.1}); \
         peak live {:.1}</text>\n",
        ROW - 8,
        mebibytes(stats.reserved),
        mebibytes(stats.live),
        mebibytes(stats.pending),
        mebibytes(stats.free()),
        mebibytes(stats.largest_free),
        mebibytes(stats.peak_live),
    );
    for (place, (heap, segment)) in segments().enumerate() {
        let of = if heap.private { "graph heap" } else { "heap" };
        let label = format!("{of} {} {:#x} {:.0} MiB", heap.id, segment.address, mebibytes(segment.bytes));
        row(&mut svg, place + 1, &label, segment, per_byte);
    }
    svg.push_str("</svg>\n");
    svg
}
