//! A tuner's measurements, and the file that keeps them.
//!
//! The file is JSON: a head that says for which device, driver and version of the library it is, and the
//! records. A file with another head, or that is no such file, is as good as none: its records are not used,
//! and the next save replaces it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::replace::replace;

/// Name and version of the file's format.
const FORMAT: &str = "ironwarp tuner records";
const VERSION: u64 = 1;

/// The best configuration found for a problem.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    /// The configuration's text.
    pub config: String,
    /// Its time, microseconds.
    pub microseconds: f64,
}

/// Why a file of records is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It is not in the form of such a file.
    #[error("it is no file of records: {0}")]
    Corrupt(String),
    /// It was made elsewhere, or by another version.
    #[error("its {what} is `{got}`, here it is `{wanted}`")]
    Foreign {
        /// The entry that differs.
        what: &'static str,
        /// In the file.
        got: String,
        /// Here.
        wanted: String,
    },
}

/// Where measurements hold: they say nothing about another device or driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    device: String,
    arch: String,
    driver: String,
    library: &'static str,
}

impl Place {
    pub fn of(device: &Device) -> Self {
        let driver = match driver::backend() {
            Ok(driver::Backend::Nvidia { version }) => format!("NVIDIA {version}"),
            Ok(driver::Backend::Software) => "software".to_owned(),
            // A device is open, so there is a driver.
            Err(error) => error.to_string(),
        };
        let (name, arch) = (device.name().to_owned(), device.arch().to_string());
        Place { device: name, arch, driver, library: env!("CARGO_PKG_VERSION") }
    }

    fn parts(&self) -> [(&'static str, &str); 4] {
        [("device", &self.device), ("arch", &self.arch), ("driver", &self.driver), ("library", self.library)]
    }
}

/// Records by problem.
pub(super) type Records = BTreeMap<String, Record>;

/// The records of a file; none, for a reason, when it is not for this place. A file that is not there has
/// none.
pub(super) fn load(path: &Path, place: &Place) -> Result<Records, Unusable> {
    if is_something_else(path) {
        return Err(Unusable::Unreadable(NO_FILE.to_owned()));
    }
    match fs::read(path) {
        Ok(bytes) => parse(&bytes, place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Records::new()),
        Err(error) => Err(Unusable::Unreadable(error.to_string())),
    }
}

const NO_FILE: &str = "it is no regular file";

/// Whether there is something that is no regular file. A device or pipe has no end, and `rename` would put
/// the records in its place.
fn is_something_else(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn parse(bytes: &[u8], place: &Place) -> Result<Records, Unusable> {
    let corrupt = |what: &str| Unusable::Corrupt(what.to_owned());
    let file: Value = serde_json::from_slice(bytes).map_err(|error| Unusable::Corrupt(error.to_string()))?;
    let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("format") != FORMAT {
        return Err(corrupt("it does not say that it is one"));
    }
    let version = file.get("version").and_then(Value::as_u64).unwrap_or_default();
    if version != VERSION {
        let (got, wanted) = (version.to_string(), VERSION.to_string());
        return Err(Unusable::Foreign { what: "version", got, wanted });
    }
    for (what, wanted) in place.parts() {
        if text(what) != wanted {
            return Err(Unusable::Foreign { what, got: text(what).to_owned(), wanted: wanted.to_owned() });
        }
    }
    let records =
        file.get("records").and_then(Value::as_object).ok_or_else(|| corrupt("it has no records"))?;
    records.iter().map(|(problem, value)| Ok((problem.clone(), record(value)?))).collect()
}

fn record(value: &Value) -> Result<Record, Unusable> {
    let config = value.get("config").and_then(Value::as_str);
    let microseconds = value.get("microseconds").and_then(Value::as_f64).filter(|time| *time >= 0.0);
    match (config, microseconds) {
        (Some(config), Some(microseconds)) => Ok(Record { config: config.to_owned(), microseconds }),
        _ => Err(Unusable::Corrupt(format!("a record is {value}"))),
    }
}

/// Writes the records beside those of other programs that the file has by now, in one step: a reader sees the
/// old file or the new one. Of two processes that save at once the last one wins. A link stays, and what it
/// leads to is written.
pub(super) fn save(path: &Path, place: &Place, records: &Records) -> Result<()> {
    /// Tuners of this process that save at the same time would lose each other's records.
    static SAVING: Mutex<()> = Mutex::new(());
    let _saving = SAVING.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = |source| Error::FileWrite { path: path.to_owned(), source };
    if is_something_else(path) {
        return Err(failed(io::Error::other(NO_FILE)));
    }
    let mut all = load(path, place).unwrap_or_default();
    all.extend(records.iter().map(|(problem, record)| (problem.clone(), record.clone())));
    let mut file = Map::new();
    file.insert("format".to_owned(), json!(FORMAT));
    file.insert("version".to_owned(), json!(VERSION));
    file.extend(place.parts().map(|(what, value)| (what.to_owned(), json!(value))));
    let records: Map<String, Value> = all
        .into_iter()
        .map(|(problem, Record { config, microseconds })| {
            (problem, json!({ "config": config, "microseconds": microseconds }))
        })
        .collect();
    file.insert("records".to_owned(), Value::Object(records));
    let text = format!("{:#}\n", Value::Object(file));
    replace(path, |new| fs::write(new, text)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::{Place, Record, Records, Unusable, load, save};
    use std::fs;

    fn place(driver: &str) -> Place {
        let text = |text: &str| text.to_owned();
        Place { device: text("D"), arch: text("sm_90"), driver: text(driver), library: "1" }
    }

    fn one(problem: &str, microseconds: f64) -> Records {
        [(problem.to_owned(), Record { config: "c, \"quoted\"".to_owned(), microseconds })].into()
    }

    #[test]
    fn what_is_saved_is_loaded_and_joined() {
        let folder = std::env::temp_dir().join(format!("ironwarp-records-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("records.json");
        let here = place("13");
        assert_eq!(load(&path, &here), Ok(Records::new()));
        save(&path, &here, &one("p", 1.5)).unwrap();
        save(&path, &here, &one("q", 2.5)).unwrap();
        let both: Records = one("p", 1.5).into_iter().chain(one("q", 2.5)).collect();
        assert_eq!(load(&path, &here), Ok(both));
        let foreign = load(&path, &place("12")).unwrap_err();
        assert_eq!(foreign.to_string(), "its driver is `13`, here it is `12`");
        // Another driver's file is replaced, not joined.
        save(&path, &place("12"), &one("r", 3.0)).unwrap();
        assert_eq!(load(&path, &place("12")), Ok(one("r", 3.0)));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_stay() {
        let folder = std::env::temp_dir().join(format!("ironwarp-linked-records-{}", std::process::id()));
        fs::create_dir_all(folder.join("shared")).unwrap();
        let (link, file) = (folder.join("records.json"), folder.join("shared/kept.json"));
        std::os::unix::fs::symlink("shared/kept.json", &link).unwrap();
        let here = place("13");
        // First to where there is no file yet.
        for microseconds in [1.5, 2.5] {
            save(&link, &here, &one("p", microseconds)).unwrap();
            assert!(link.is_symlink());
            assert_eq!(load(&file, &here), Ok(one("p", microseconds)));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn saves_at_the_same_time_keep_all() {
        let path = std::env::temp_dir().join(format!("ironwarp-many-records-{}.json", std::process::id()));
        let here = place("13");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (path, here) = (&path, &here);
                scope.spawn(move || {
                    for problem in 0..12 {
                        save(path, here, &one(&format!("{thread} {problem}"), 1.0)).unwrap();
                    }
                });
            }
        });
        assert_eq!(load(&path, &here).unwrap().len(), 48);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_file_of_records_is_none() {
        let path = std::env::temp_dir().join(format!("ironwarp-no-records-{}.json", std::process::id()));
        let here = place("13");
        save(&path, &here, &one("p", 1.5)).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let spoilt = [
            String::new(),
            good[..good.len() / 2].to_owned(),
            good.replace("ironwarp tuner records", "other"),
            good.replace("\"version\": 1", "\"version\": 0"),
            good.replace("1.5", "\"soon\""),
            good.replace("1.5", "-1.5"),
            good.replace("\"records\"", "\"others\""),
            "[1, 2]".to_owned(),
            "[".repeat(100_000),
            "\0\u{1b}[2J".to_owned(),
            format!("{good}{good}"),
            good.trim_end().trim_end_matches('}').to_owned(),
            good.replace("{", "[").replace("}", "]"),
        ];
        for text in spoilt {
            assert_ne!(text, good);
            fs::write(&path, &text).unwrap();
            let error = load(&path, &here).unwrap_err();
            let expected = if text.contains("\"version\": 0") {
                matches!(error, Unusable::Foreign { what: "version", .. })
            } else {
                matches!(error, Unusable::Corrupt(_))
            };
            assert!(expected, "{error} for {text}");
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(load(std::env::temp_dir().as_path(), &here), Err(Unusable::Unreadable(_))));
    }

    #[test]
    fn what_is_no_regular_file_stays() {
        let folder = std::env::temp_dir().join(format!("ironwarp-odd-records-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [folder.as_path(), &socket, "/dev/zero".as_ref()] {
            let here = place("13");
            assert!(matches!(load(path, &here), Err(Unusable::Unreadable(_))), "{path:?}");
            let before = fs::symlink_metadata(path).unwrap().file_type();
            if !path.starts_with("/dev") {
                let error = save(path, &here, &one("p", 1.5)).unwrap_err().to_string();
                assert!(error.contains("no regular file"), "{error}");
            }
            assert_eq!(fs::symlink_metadata(path).unwrap().file_type(), before);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside");
        fs::remove_dir_all(&folder).unwrap();
    }
}
