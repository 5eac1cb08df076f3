//! The words of an error about a call that was refused.

use ironwarp::Error;

/// The subject of the error. Checks that it names the operation, and says what to do.
pub fn subject(error: &Error, operation: &str) -> &'static str {
    let text = error.to_string();
    assert!(text.contains(operation) && text.contains("hint: "), "{text}");
    match error {
        Error::Length { what, .. } => what,
        Error::InvalidArgument { argument, .. } => argument,
        other => panic!("another kind of error: {other}"),
    }
}
