//! Frames: two letters, the version, a zero, the length, and that many bytes.
//!
//! Whoever reads allocates nothing before the head is checked, and never more than the limit.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How a frame begins.
const MAGIC: [u8; 2] = *b"IW";
/// The version of the protocol. Both sides must have the same.
pub const VERSION: u8 = 1;
/// Letters, version, zero, length.
const HEAD: usize = 8;
/// The longest frame of a rank that has joined, and of the store.
pub const MAX_FRAME: usize = 8 << 20;
/// The longest frame of somebody who has not.
pub const MAX_GREETING: usize = 256;

/// Bytes that are no frame of this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Something else speaks there.
    #[error("it sent {0:?}, which is nothing of ironwarp's")]
    Garbage(String),
    /// Another release speaks there.
    #[error("it speaks version {0} of the protocol, this program version {VERSION}")]
    Version(u8),
    /// A frame that nobody sends.
    #[error("it announced {length} bytes, more than {limit}")]
    TooLong {
        /// The announced length.
        length: usize,
        /// The longest one.
        limit: usize,
    },
    /// A frame whose content does not parse.
    #[error("it sent a message that does not parse")]
    Malformed,
}

/// The frame of a message.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    headed(written(message, vec![0; HEAD]), 0)
}

/// A list as the last field of messages, written once for all of them.
pub fn last_field(list: &impl Serialize) -> Arc<[u8]> {
    written(list, Vec::new()).into()
}

/// The list that [`last_field`] wrote.
pub fn read_last_field<L: DeserializeOwned>(field: &[u8]) -> Option<L> {
    postcard::from_bytes(field).ok()
}

/// The frame of a message without its last field, which follows: an empty list stands for it in `message`.
pub fn encode_ahead_of(last_field: &[u8], message: &impl Serialize) -> Vec<u8> {
    let mut frame = written(message, vec![0; HEAD]);
    // Fields lie one behind the other; the length of an empty list is a zero.
    let none = frame.pop();
    debug_assert_eq!(none, Some(0), "the last field is an empty list");
    headed(frame, last_field.len())
}

fn written(value: &impl Serialize, behind: Vec<u8>) -> Vec<u8> {
    // Messages are numbers, texts and lists: nothing that postcard could refuse.
    let bytes = postcard::to_extend(value, behind);
    bytes.unwrap_or_else(|error| unreachable!("a message that cannot be written: {error}"))
}

/// The frame, of which so many bytes follow, with its head.
fn headed(mut frame: Vec<u8>, follow: usize) -> Vec<u8> {
    let length = u32::try_from(frame.len() - HEAD + follow).unwrap_or(u32::MAX);
    frame[..2].copy_from_slice(&MAGIC);
    frame[2] = VERSION;
    frame[4..HEAD].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Takes the first message off the front, once it is there as a whole.
///
/// # Errors
/// When no message begins there; the connection is of no more use then.
pub fn take<M: DeserializeOwned>(buffer: &mut Vec<u8>, limit: usize) -> Result<Option<M>, WireError> {
    let head = &buffer[..buffer.len().min(HEAD)];
    let letters = head.len().min(MAGIC.len());
    if head[..letters] != MAGIC[..letters] || head.get(3).is_some_and(|&zero| zero != 0) {
        return Err(WireError::Garbage(String::from_utf8_lossy(head).into_owned()));
    }
    if let Some(&version) = head.get(2).filter(|&&version| version != VERSION) {
        return Err(WireError::Version(version));
    }
    let Ok(head) = <[u8; HEAD]>::try_from(head) else { return Ok(None) };
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if length > limit {
        return Err(WireError::TooLong { length, limit });
    }
    let Some(content) = buffer.get(HEAD..HEAD + length) else { return Ok(None) };
    let message = match postcard::take_from_bytes(content) {
        Ok((message, [])) => message,
        _ => return Err(WireError::Malformed),
    };
    buffer.drain(..HEAD + length);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;
    use crate::message::{Reply, Request};

    fn ask() -> Request {
        Request::Set { id: 3, key: "key".to_owned(), value: vec![1, 2, 3] }
    }

    #[test]
    fn messages_arrive_in_any_pieces() {
        let bytes = [encode(&ask()), encode(&Request::Leave)].concat();
        for piece in 1..bytes.len() {
            let (mut buffer, mut got) = (Vec::new(), Vec::new());
            for part in bytes.chunks(piece) {
                buffer.extend_from_slice(part);
                while let Some(message) = take::<Request>(&mut buffer, MAX_FRAME).unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, [ask(), Request::Leave], "{piece}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_last_field_is_written_once() {
        for value in [vec![], vec![7], vec![0; 300]] {
            let field = last_field(&value);
            assert_eq!(read_last_field::<Vec<u8>>(&field).as_ref(), Some(&value));
            let ahead = encode_ahead_of(&field, &Reply::Value { id: 300, value: Vec::new() });
            assert_eq!([&ahead, &*field].concat(), encode(&Reply::Value { id: 300, value }));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let refused = |bytes: &[u8]| take::<Request>(&mut bytes.to_vec(), 100).unwrap_err();
        assert_eq!(refused(b"G"), WireError::Garbage("G".to_owned()));
        assert_eq!(refused(b"GET / HTTP/1.1"), WireError::Garbage("GET / HT".to_owned()));
        assert_eq!(refused(b"IW\x02\0"), WireError::Version(2));
        assert!(matches!(refused(b"IW\x01\x01"), WireError::Garbage(_)));
        assert_eq!(refused(b"IW\x01\0\x65\0\0\0"), WireError::TooLong { length: 101, limit: 100 });
        // A list that is said to be longer than the message.
        assert_eq!(refused(b"IW\x01\0\x05\0\0\0\x01\x01\xff\xff\x7f"), WireError::Malformed);
        // A byte too many.
        let mut long = encode(&Request::Leave);
        long[4] += 1;
        long.push(0);
        assert_eq!(refused(&long), WireError::Malformed);
        assert_eq!(take::<Request>(&mut b"IW\x01\0\x64\0\0\0".to_vec(), 100), Ok(None));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut random = Random::new(16);
        for round in 0..20_000 {
            let mut bytes = encode(&ask());
            for _ in 0..=round % 3 {
                let at = random.integer(0, bytes.len() as i64 - 1) as usize;
                bytes[at] = random.bits() as u8;
            }
            // Whatever it is, it is no message or one of the right type.
            let _ = take::<Request>(&mut bytes, 1000);
            let mut noise: Vec<u8> = encode(&Request::Leave)[..8].to_vec();
            noise[4] = 40;
            noise.extend((0..40).map(|_| random.bits() as u8));
            let _ = take::<Request>(&mut noise, 1000);
        }
    }
}
