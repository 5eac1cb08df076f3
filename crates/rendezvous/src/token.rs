//! The secret that the processes of a job share.

use std::fmt;

use crate::message::Hello;

/// Separates this use of the hash from all others.
const CONTEXT: &str = "ironwarp rendezvous 2026 token";

/// A secret that the processes of a job share. It never crosses the network: a rank proves that it has it, by
/// a keyed hash of a number that the store draws for each connection. It cannot be printed.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The token that a text stands for.
    pub fn from_text(text: &str) -> Self {
        Self(blake3::derive_key(CONTEXT, text.as_bytes()))
    }

    /// A new text for [`from_text`](Self::from_text), for the variable by which a launcher hands it on.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn random_text() -> std::io::Result<String> {
        Ok(random()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Shows that the sender of `hello` has the token.
    pub(crate) fn proof(&self, nonce: &[u8; 32], hello: &Hello) -> [u8; 32] {
        *self.hash(nonce, hello).as_bytes()
    }

    /// Whether the proof is right. Takes the same time whatever it is.
    pub(crate) fn accepts(&self, nonce: &[u8; 32], hello: &Hello, proof: &[u8; 32]) -> bool {
        // Hashes of blake3 compare in constant time.
        self.hash(nonce, hello) == blake3::Hash::from_bytes(*proof)
    }

    fn hash(&self, nonce: &[u8; 32], hello: &Hello) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(nonce);
        for number in [hello.rank, hello.size, hello.generation] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.finalize()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(..)")
    }
}

/// Bytes that nobody can foresee.
pub(crate) fn random() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_one_connection_one_rank_and_one_token() {
        let hello = Hello { rank: 1, size: 4, generation: 0 };
        let token = Token::from_text("secret");
        let proof = token.proof(&[7; 32], &hello);
        assert!(token.accepts(&[7; 32], &hello, &proof));
        assert!(!token.accepts(&[8; 32], &hello, &proof));
        assert!(!token.accepts(&[7; 32], &Hello { rank: 2, ..hello }, &proof));
        assert!(!token.accepts(&[7; 32], &Hello { generation: 1, ..hello }, &proof));
        assert!(!Token::from_text("secret ").accepts(&[7; 32], &hello, &proof));
    }

    #[test]
    fn a_token_cannot_be_printed() {
        let text = Token::random_text().unwrap();
        assert_eq!(text.len(), 64);
        assert_ne!(text, Token::random_text().unwrap());
        assert_eq!(format!("{:?}", Token::from_text(&text)), "Token(..)");
    }
}
