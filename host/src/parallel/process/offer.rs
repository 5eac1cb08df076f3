//! The words of ranks that join, and why they cannot reach each other's memory.

use std::fmt::Write;

use collective::MAX_RANKS;
use serde_json::{Value, json};

use super::watch::Process;
use crate::parallel::group::Backend;

/// Bytes of a reason that ranks exchange: an offer with three fits in a letter (`words::LETTER`).
const MOST: usize = 500;

/// The words of a rank. They travel as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The start of the system that it runs on.
    pub machine: String,
    pub process: Process,
    /// The number that its device alone has.
    pub device: String,
    pub backend: Option<Backend>,
    /// Why it has no NCCL; empty if it has.
    pub no_nccl: String,
    /// NCCL's id of the group, from the first rank.
    pub id: Vec<u8>,
    /// By which others open its memory.
    pub handle: Vec<u8>,
    /// The file of the shared host memory, from the first rank.
    pub file: i32,
    /// Blocks that its device has room for.
    pub room: u32,
    /// Why others cannot open its memory; empty if they can.
    pub hindrance: String,
    /// Why the rank cannot join at all; empty if it can.
    pub failure: String,
}

/// The words of a rank that has tried to open the memory of the others.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Reached,
    /// It could not, for a reason that leaves other ways.
    Hindered(String),
    /// It cannot join at all.
    Failed(String),
}

impl Said {
    /// A letter, and the reason.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (letter, reason) = match self {
            Said::Reached => ('r', ""),
            Said::Hindered(reason) => ('h', &**reason),
            Said::Failed(reason) => ('f', &**reason),
        };
        format!("{letter}{}", brief(reason)).into_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (letter, reason) = text.split_at_checked(1)?;
        match letter {
            "r" => Some(Said::Reached),
            "h" => Some(Said::Hindered(reason.to_owned())),
            "f" => Some(Said::Failed(reason.to_owned())),
            _ => None,
        }
    }
}

/// The beginning of a reason, as long as it fits in what ranks exchange. JSON would write most control
/// characters in six bytes each, so they become spaces.
pub fn brief(reason: &str) -> String {
    let is_long = |c: char| c.is_control() && c != '\n';
    reason[..reason.floor_char_boundary(MOST)].replace(is_long, " ")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Strings do not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = |at| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect()
}

fn name_of(backend: Option<Backend>) -> &'static str {
    match backend {
        None => "",
        Some(Backend::PeerMemory) => "peer memory",
        Some(Backend::Nccl) => "nccl",
    }
}

impl Offer {
    pub fn to_bytes(&self) -> Vec<u8> {
        let value = json!({
            "machine": self.machine,
            "process": self.process.number,
            "begun": self.process.begun,
            "device": self.device,
            "backend": name_of(self.backend),
            "no_nccl": self.no_nccl,
            "id": hexadecimal(&self.id),
            "handle": hexadecimal(&self.handle),
            "file": self.file,
            "room": self.room,
            "hindrance": brief(&self.hindrance),
            "failure": self.failure,
        });
        value.to_string().into_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let number = |name: &str| value.get(name)?.as_u64();
        let backend = text("backend")?;
        let backends = [None, Some(Backend::PeerMemory), Some(Backend::Nccl)];
        let begun = number("begun")?;
        Some(Offer {
            machine: text("machine")?,
            process: Process { number: u32::try_from(number("process")?).ok()?, begun },
            device: text("device")?,
            backend: backends.into_iter().find(|known| name_of(*known) == backend)?,
            no_nccl: text("no_nccl")?,
            id: bytes_of(&text("id")?)?,
            handle: bytes_of(&text("handle")?)?,
            file: i32::try_from(value.get("file")?.as_i64()?).ok()?,
            room: u32::try_from(number("room")?).ok()?,
            hindrance: text("hindrance")?,
            failure: text("failure")?,
        })
    }
}

/// Why ranks with these offers cannot reach each other's memory: the same on all of them.
pub fn hindrance(offers: &[Offer]) -> Option<String> {
    if let Some(hindrance) = too_many(offers.len()) {
        return Some(hindrance);
    }
    let first = &offers[0];
    for (rank, offer) in offers.iter().enumerate() {
        if !offer.hindrance.is_empty() {
            return Some(format!("rank {rank}: {}", offer.hindrance));
        }
        if offer.machine != first.machine {
            return Some(format!("rank {rank} is on another machine than rank 0"));
        }
        if let Some(other) = offers[..rank].iter().position(|other| other.device == offer.device) {
            return Some(format!(
                "ranks {other} and {rank} have the same device, where kernels that wait for each other may not \
                 run at the same time"
            ));
        }
    }
    None
}

/// More ranks than kernels reach. Known before anything is allocated for them.
pub fn too_many(ranks: usize) -> Option<String> {
    let said = || format!("there are {ranks} ranks, and kernels reach {MAX_RANKS} at most");
    (ranks > MAX_RANKS).then(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::process::words::LETTER;

    fn offer(number: u32) -> Offer {
        Offer {
            machine: "a".to_owned(),
            process: Process { number, begun: 1 << 40 },
            device: number.to_string(),
            backend: Some(Backend::PeerMemory),
            no_nccl: "not here".to_owned(),
            id: vec![0, 255, 16],
            handle: vec![7; 64],
            file: -1,
            room: 64,
            hindrance: String::new(),
            failure: "out of memory".to_owned(),
        }
    }

    #[test]
    fn answers_arrive_as_they_were() {
        for said in [Said::Reached, Said::Hindered("no".to_owned()), Said::Failed(String::new())] {
            assert_eq!(Said::from_bytes(&said.to_bytes()), Some(said));
        }
        for wrong in [&b""[..], b"x", b"\xff"] {
            assert_eq!(Said::from_bytes(wrong), None);
        }
        // A letter of two bytes is not cut.
        let long = Said::Failed("\u{e9}".repeat(MOST)).to_bytes();
        let Some(Said::Failed(reason)) = Said::from_bytes(&long) else { panic!("{long:?}") };
        assert_eq!(reason.len(), MOST);
    }

    #[test]
    fn offers_arrive_as_they_were() {
        for backend in [None, Some(Backend::PeerMemory), Some(Backend::Nccl)] {
            let offer = Offer { backend, ..offer(7) };
            assert_eq!(Offer::from_bytes(&offer.to_bytes()), Some(offer));
        }
        for wrong in [&b"{}"[..], b"", b"\xff", b"[]"] {
            assert_eq!(Offer::from_bytes(wrong), None);
        }
    }

    /// Whatever there is to say: parts of a group meet by letters of a fixed length.
    #[test]
    fn offers_fit_in_a_letter() {
        for reason in ["\n\"", "\u{1b}"].map(|part| part.repeat(MOST)) {
            let offer = Offer {
                machine: "0".repeat(36),
                process: Process { number: u32::MAX, begun: u64::MAX },
                device: format!("{:02x?}", [255; 16]),
                no_nccl: brief(&reason),
                id: vec![255; 128],
                handle: vec![255; 64],
                file: i32::MIN,
                room: u32::MAX,
                failure: brief(&reason),
                hindrance: reason,
                ..offer(0)
            };
            let bytes = offer.to_bytes().len();
            assert!(bytes <= LETTER * size_of::<u64>(), "{bytes} bytes");
        }
    }

    #[test]
    fn hindrances_are_named() {
        assert_eq!(hindrance(&[offer(0), offer(1)]), None);
        let of = |second: Offer| hindrance(&[offer(0), second]).expect("a hindrance");
        assert!(of(offer(0)).contains("ranks 0 and 1 have the same device"));
        assert!(of(Offer { machine: "b".to_owned(), ..offer(1) }).contains("rank 1 is on another machine"));
        assert_eq!(of(Offer { hindrance: "no".to_owned(), ..offer(1) }), "rank 1: no");
        let many: Vec<Offer> = (0..9).map(offer).collect();
        assert!(hindrance(&many).expect("a hindrance").contains("9 ranks"));
    }
}
