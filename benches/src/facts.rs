//! The time, place and device of a measurement.

use ironwarp::Device;
use std::ffi::OsString;
use std::fmt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Columns queried from `nvidia-smi`. They explain a slow run.
const SMI_COLUMNS: &str = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu,clocks_event_reasons.active";

/// The facts in every record.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Name of the device.
    pub device: String,
    /// The name of the driver.
    pub driver: String,
    /// UTC, ISO 8601.
    pub date: String,
    /// The program's command line.
    pub command: String,
}

impl Facts {
    /// The facts of this process and `device`.
    pub fn of(device: &Device) -> Self {
        let driver = match driver::backend() {
            Ok(driver::Backend::Nvidia { version }) => {
                format!("NVIDIA, CUDA {}.{}", version / 1000, version % 1000 / 10)
            }
            Ok(driver::Backend::Software) => "software".to_owned(),
            Err(error) => format!("unknown ({error})"),
        };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Facts {
            device: device.name().to_owned(),
            driver,
            date: utc(seconds),
            command: command_line(std::env::args_os()),
        }
    }
}

/// In one line of text, whatever the arguments are.
fn command_line(arguments: impl Iterator<Item = OsString>) -> String {
    let words: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    words.join(" ").replace(char::is_control, " ")
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { device, driver, date, command } = self;
        write!(f, "{device}; driver {driver}; {date}; `{command}`")
    }
}

/// Clocks, power and throttle reasons at this moment, or the reason why they are unknown.
pub fn clocks() -> String {
    let query = format!("--query-gpu={SMI_COLUMNS}");
    match Command::new("nvidia-smi").args([query.as_str(), "--format=csv,noheader"]).output() {
        Ok(output) if output.status.success() => {
            let line = String::from_utf8_lossy(&output.stdout);
            format!("{SMI_COLUMNS}: {}", line.lines().next().unwrap_or_default())
        }
        Ok(output) => format!("clocks unknown: nvidia-smi ended with {}", output.status),
        Err(error) => format!("clocks unknown: nvidia-smi: {error}"),
    }
}

/// Seconds since 1970 as `2026-01-31T12:00:00Z`.
fn utc(seconds: u64) -> String {
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    loop {
        let length = 365 + u64::from(is_leap(year));
        if days < length {
            break;
        }
        (days, year) = (days - length, year + 1);
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        (days, month) = (days - length, month + 1);
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::{command_line, utc};

    #[test]
    fn command_lines_are_a_line() {
        let arguments = ["basic", "--out", "a\n\x1b[2J"].map(Into::into);
        assert_eq!(command_line(arguments.into_iter()), "basic --out a  [2J");
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(utc(4_102_444_800), "2100-01-01T00:00:00Z");
    }
}
