//! C's formats, for `vprintf` on the host.
//!
//! The rules are those of the C standard for `fprintf`, without `%n`; `long` has 64 bits, as on the device.

use std::ffi::{CStr, c_char, c_void};

/// The text, and the number of arguments that it took.
///
/// # Safety
/// As for [`vprintf`](super::vprintf); `format` is not null.
pub unsafe fn format(format: *const u8, arguments: *const c_void) -> (String, i32) {
    // SAFETY: the caller's promise.
    let format = unsafe { CStr::from_ptr(format.cast()) }.to_bytes();
    let mut arguments = Arguments { base: arguments.cast(), at: 0, taken: 0 };
    let mut text = Vec::new();
    let mut rest = format;
    while let Some(percent) = rest.iter().position(|&byte| byte == b'%') {
        text.extend_from_slice(&rest[..percent]);
        // SAFETY: the caller's promise.
        match unsafe { Conversion::parse(&rest[percent + 1..], &mut arguments) } {
            Some((conversion, behind)) => {
                // SAFETY: the caller's promise.
                text.extend(unsafe { conversion.apply(&mut arguments) });
                rest = behind;
            }
            // Not a conversion: printed as it stands.
            None => {
                text.push(b'%');
                rest = &rest[percent + 1..];
            }
        }
    }
    text.extend_from_slice(rest);
    (String::from_utf8_lossy(&text).into_owned(), arguments.taken)
}

/// The arguments in memory, each aligned to its size.
struct Arguments {
    base: *const u8,
    at: usize,
    taken: i32,
}

impl Arguments {
    /// # Safety
    /// The next argument is a `T`.
    unsafe fn next<T: Copy>(&mut self) -> T {
        let at = self.at.next_multiple_of(size_of::<T>());
        self.at = at + size_of::<T>();
        self.taken += 1;
        // SAFETY: the caller's promise.
        unsafe { self.base.add(at).cast::<T>().read_unaligned() }
    }
}

/// `%[flags][width][.precision][size]kind`
#[derive(Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    size: &'static str,
    kind: u8,
}

impl Conversion {
    /// The conversion behind a `%`, and the text behind that.
    ///
    /// # Safety
    /// The arguments are those of the format.
    unsafe fn parse<'f>(mut text: &'f [u8], arguments: &mut Arguments) -> Option<(Self, &'f [u8])> {
        const SIZES: [&str; 8] = ["hh", "h", "ll", "l", "j", "z", "t", "L"];
        let mut conversion = Self::default();
        while let [flag, behind @ ..] = text {
            match flag {
                b'-' => conversion.left = true,
                b'+' => conversion.plus = true,
                b' ' => conversion.space = true,
                b'#' => conversion.alternative = true,
                b'0' => conversion.zeros = true,
                _ => break,
            }
            text = behind;
        }
        // SAFETY: the caller's promise.
        let width = unsafe { number(&mut text, arguments) }.unwrap_or(0);
        conversion.left |= width < 0;
        conversion.width = width.unsigned_abs() as usize;
        if let [b'.', behind @ ..] = text {
            text = behind;
            // SAFETY: the caller's promise.
            conversion.precision = usize::try_from(unsafe { number(&mut text, arguments) }.unwrap_or(0)).ok();
        }
        conversion.size = SIZES.into_iter().find(|size| text.starts_with(size.as_bytes())).unwrap_or("");
        let (&kind, behind) = text[conversion.size.len()..].split_first()?;
        conversion.kind = kind;
        b"diouxXcspfFeEgGaA%".contains(&kind).then_some((conversion, behind))
    }

    /// # Safety
    /// The next argument is of this conversion.
    unsafe fn apply(&self, arguments: &mut Arguments) -> Vec<u8> {
        // SAFETY: the caller's promise, for each of the reads.
        unsafe {
            match self.kind {
                b'%' => vec![b'%'],
                b'd' | b'i' => self.signed(self.integer(arguments)),
                b'o' | b'u' | b'x' | b'X' => self.unsigned(self.integer(arguments)),
                b'c' => self.pad("", vec![arguments.next::<i32>() as u8], false),
                b's' => self.string(arguments.next()),
                b'p' => self.pad("0x", format!("{:x}", arguments.next::<u64>()).into(), false),
                _ => self.float(arguments.next()),
            }
        }
    }

    /// # Safety
    /// The next argument is an integer of this size.
    unsafe fn integer(&self, arguments: &mut Arguments) -> i64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.size {
                "" => i64::from(arguments.next::<i32>()),
                "h" => i64::from(arguments.next::<i32>() as i16),
                "hh" => i64::from(arguments.next::<i32>() as i8),
                _ => arguments.next::<i64>(),
            }
        }
    }

    fn signed(&self, value: i64) -> Vec<u8> {
        self.digits(self.sign(value < 0), value.unsigned_abs().to_string())
    }

    fn unsigned(&self, value: i64) -> Vec<u8> {
        // The bits that the sign filled up go again.
        let value = match self.size {
            "" => u64::from(value as u32),
            "h" => u64::from(value as u16),
            "hh" => u64::from(value as u8),
            _ => value as u64,
        };
        match self.kind {
            b'o' if self.alternative && value != 0 => self.digits("", format!("0{value:o}")),
            b'o' => self.digits("", format!("{value:o}")),
            b'x' => self.digits(if self.alternative && value != 0 { "0x" } else { "" }, format!("{value:x}")),
            b'X' => self.digits(if self.alternative && value != 0 { "0X" } else { "" }, format!("{value:X}")),
            _ => self.digits("", value.to_string()),
        }
    }

    /// Digits of an integer: the precision is their least number, and 0 with precision 0 has none.
    fn digits(&self, prefix: &str, digits: String) -> Vec<u8> {
        let Some(least) = self.precision else { return self.pad(prefix, digits.into(), self.zeros) };
        let digits = if least == 0 && digits == "0" { String::new() } else { format!("{digits:0>least$}") };
        self.pad(prefix, digits.into(), false)
    }

    /// # Safety
    /// `text` is null, or ends with NUL or behind the precision.
    unsafe fn string(&self, text: *const c_char) -> Vec<u8> {
        if text.is_null() {
            return self.pad("", b"(null)".into(), false);
        }
        let most = self.precision.unwrap_or(usize::MAX);
        // SAFETY: the caller's promise; nothing behind a NUL is read.
        let bytes = (0..most).map(|at| unsafe { text.add(at).cast::<u8>().read() });
        self.pad("", bytes.take_while(|&byte| byte != 0).collect(), false)
    }

    fn float(&self, value: f64) -> Vec<u8> {
        let (sign, magnitude) = (self.sign(value.is_sign_negative()), value.abs());
        let precision = self.precision.unwrap_or(6);
        let (prefix, text) = match self.kind.to_ascii_lowercase() {
            _ if !value.is_finite() => ("", if value.is_nan() { "nan" } else { "inf" }.to_owned()),
            b'f' => ("", self.with_point(format!("{magnitude:.precision$}"))),
            b'e' => ("", self.exponential(magnitude, precision)),
            b'g' => ("", self.shortest(magnitude, precision.max(1))),
            _ => ("0x", self.hexadecimal(magnitude)),
        };
        let (mut prefix, mut text) = (format!("{sign}{prefix}"), text);
        if self.kind.is_ascii_uppercase() {
            (prefix, text) = (prefix.to_uppercase(), text.to_uppercase());
        }
        self.pad(&prefix, text.into(), self.zeros && value.is_finite())
    }

    /// `#` asks for a point even where no digit follows.
    fn with_point(&self, text: String) -> String {
        if self.alternative && !text.contains('.') { text + "." } else { text }
    }

    /// `1.5e+03`: at least two digits of the exponent.
    fn exponential(&self, magnitude: f64, precision: usize) -> String {
        let text = format!("{magnitude:.precision$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        format!("{}e{sign}{digits:0>2}", self.with_point(mantissa.to_owned()))
    }

    /// `precision` digits in the shorter of both ways, without zeros at the end.
    fn shortest(&self, magnitude: f64, precision: usize) -> String {
        let exponential = self.exponential(magnitude, precision - 1);
        let (mantissa, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
        let power: i32 = exponent.parse().unwrap_or(0);
        let strip = |text: &str| match text.contains('.') && !self.alternative {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        };
        if power < -4 || power >= precision as i32 {
            return format!("{}e{exponent}", strip(mantissa));
        }
        let behind = (precision as i32 - 1 - power) as usize;
        strip(&self.with_point(format!("{magnitude:.behind$}")))
    }

    /// `1.8p+1`, without the `0x` in front.
    fn hexadecimal(&self, magnitude: f64) -> String {
        const DIGITS: usize = 13;
        let bits = magnitude.to_bits();
        let (field, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
        let exponent = if bits == 0 { 0 } else { field.max(1) as i32 - 1023 };
        let mut mantissa = fraction | u64::from(field != 0) << 52;
        let shown = self.precision.map_or(DIGITS, |precision| precision.min(DIGITS));
        let dropped = 4 * (DIGITS - shown);
        if dropped > 0 {
            let (half, odd) = (1u64 << (dropped - 1), mantissa >> dropped & 1);
            mantissa = (mantissa + half - 1 + odd) >> dropped << dropped;
        }
        let digits = format!("{:0DIGITS$x}", mantissa & ((1 << 52) - 1));
        let digits = match self.precision {
            None => digits.trim_end_matches('0').to_owned(),
            Some(precision) => format!("{:0<precision$}", &digits[..shown]),
        };
        let point = if digits.is_empty() && !self.alternative { "" } else { "." };
        format!("{}{point}{digits}p{exponent:+}", mantissa >> 52)
    }

    fn sign(&self, negative: bool) -> &'static str {
        match negative {
            true => "-",
            false if self.plus => "+",
            false if self.space => " ",
            false => "",
        }
    }

    /// Fills up to the width: blanks on either side, or zeros behind the prefix.
    fn pad(&self, prefix: &str, text: Vec<u8>, zeros: bool) -> Vec<u8> {
        let missing = self.width.saturating_sub(prefix.len() + text.len());
        let fill = |byte| vec![byte; missing];
        let prefix = prefix.as_bytes().to_vec();
        match (self.left, zeros) {
            (true, _) => [prefix, text, fill(b' ')],
            (false, true) => [prefix, fill(b'0'), text],
            (false, false) => [fill(b' '), prefix, text],
        }
        .concat()
    }
}

/// A number of the format, or `*`: the next argument.
///
/// # Safety
/// The arguments are those of the format.
unsafe fn number(text: &mut &[u8], arguments: &mut Arguments) -> Option<i32> {
    if let [b'*', behind @ ..] = *text {
        *text = behind;
        // SAFETY: the caller's promise.
        return Some(unsafe { arguments.next() });
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, behind) = text.split_at(digits);
    *text = behind;
    str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};

    /// The text of a format and of arguments of 8 bytes each.
    fn text(format: &CStr, arguments: &[u64]) -> String {
        // SAFETY: the tests pass what their formats name; an `int` is read from the low half of its 8 bytes.
        let (text, taken) = unsafe { super::format(format.as_ptr().cast(), arguments.as_ptr().cast()) };
        assert_eq!(taken as usize, arguments.len(), "{format:?}");
        text
    }

    fn float(format: &CStr, value: f64) -> String {
        text(format, &[value.to_bits()])
    }

    #[test]
    fn integers() {
        assert_eq!(
            text(c"%lld|%5lld|%-5lld|%05lld|%+lld|% lld", &[7, 7, 7, 7, 7, 7]),
            "7|    7|7    |00007|+7| 7"
        );
        assert_eq!(text(c"%d", &[-5i64 as u64]), "-5");
        assert_eq!(text(c"%06ld|%.3ld|%8.3ld|%.0ld|", &[-42i64 as u64, 5, 5, 0]), "-00042|005|     005||");
        assert_eq!(text(c"%lx %#lX %lo %#lo %#lx", &[255, 255, 8, 8, 0]), "ff 0XFF 10 010 0");
        assert_eq!(text(c"%u", &[u64::MAX]), "4294967295");
        assert_eq!(text(c"%hhu", &[0x1ff]), "255");
        assert_eq!(text(c"%hd", &[0xffff]), "-1");
        assert_eq!(text(c"%zu %llu", &[u64::MAX, 1]), "18446744073709551615 1");
    }

    #[test]
    fn arguments_are_aligned_to_their_size() {
        #[repr(C)]
        struct Mixed(i32, f64, i32, i32, *const c_char, u8);
        let mixed = Mixed(1, 2.5, 3, 4, c"text".as_ptr(), b'!');
        // SAFETY: the arguments are those of the format.
        let (text, taken) =
            unsafe { super::format(c"%d %.1f %*d %s".as_ptr().cast(), (&raw const mixed).cast()) };
        assert_eq!((text.as_str(), taken), ("1 2.5   4 text", 5));
    }

    #[test]
    fn text_and_pointers() {
        let name = c"warp".as_ptr() as u64;
        assert_eq!(text(c"%s|%6s|%-6s|%.2s|", &[name; 4]), "warp|  warp|warp  |wa|");
        assert_eq!(text(c"%s %p", &[0, 0xabc]), "(null) 0xabc");
        assert_eq!(text(c"%c", &[b'x'.into()]), "x");
        assert_eq!(text(c"100%% %y %", &[]), "100% %y %");
    }

    /// The results are those of a C library.
    #[test]
    fn floats() {
        assert_eq!(float(c"%f", 1.5), "1.500000");
        assert_eq!(float(c"%08.2f", -3.25), "-0003.25");
        assert_eq!(float(c"%+.0f", 2.5), "+2");
        assert_eq!(float(c"%#.0f", 3.0), "3.");
        assert_eq!(float(c"%e", 12345.678), "1.234568e+04");
        assert_eq!(float(c"%.2E", 1e-300), "1.00E-300");
        assert_eq!(float(c"%g", 100000.0), "100000");
        assert_eq!(float(c"%g", 1e6), "1e+06");
        assert_eq!(float(c"%g", 0.0001), "0.0001");
        assert_eq!(float(c"%G", 0.00001), "1E-05");
        assert_eq!(float(c"%g", 9.9999995), "10");
        assert_eq!(float(c"%#g", 1.0), "1.00000");
        assert_eq!(float(c"%.3g", 1234.0), "1.23e+03");
        assert_eq!(float(c"%5.1f|", f64::INFINITY), "  inf|");
        assert_eq!(float(c"%05F", f64::NEG_INFINITY), " -INF");
        assert_eq!(float(c"%f", f64::NAN), "nan");
        assert_eq!(float(c"%a", 3.0), "0x1.8p+1");
        assert_eq!(float(c"%a", 0.0), "0x0p+0");
        assert_eq!(float(c"%.1A", 1.96875), "0X2.0P+0");
        assert_eq!(float(c"%.3a", -0.1), "-0x1.99ap-4");
    }
}
