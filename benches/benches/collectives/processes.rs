//! Ranks that are processes: this program again for each rank but the first, whose turns they follow.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use ironwarp::parallel::{Backend, Communicator, GroupOptions};
use ironwarp::{Device, Result};
use ironwarp_benches::Outcome;
use serde_json::json;

use super::{Op, Runner};

/// The number of a rank, and of all ranks, in its process.
const RANK: &str = "COLLECTIVES_RANK";
const RANKS: &str = "COLLECTIVES_RANKS";
/// The first byte of a message to a rank.
const CASE: u8 = b'c';
const TURN: u8 = b't';
const END: u8 = b'e';

/// The other ranks, and the way to them.
pub struct Others {
    ranks: Vec<(Child, ChildStdin, BufReader<ChildStdout>)>,
    /// The first rank's; `None` at the end.
    communicator: Option<Communicator>,
}

fn options() -> GroupOptions {
    GroupOptions { backend: Some(Backend::PeerMemory), ..GroupOptions::default() }
}

/// A part of an exchange as a line.
fn line_of(bytes: &[u8]) -> String {
    format!("{}\n", json!(bytes))
}

fn bytes_of(line: &str) -> io::Result<Vec<u8>> {
    serde_json::from_str(line).map_err(io::Error::other)
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err(io::Error::other("a rank has ended")),
        _ => Ok(line),
    }
}

impl Others {
    /// Starts them, and joins them.
    pub fn start(devices: &[Device]) -> Outcome<Self> {
        let ranks = devices.len();
        let start = |rank: usize| -> io::Result<_> {
            let mut command = Command::new(env::current_exe()?);
            command.env(RANK, rank.to_string()).env(RANKS, ranks.to_string());
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let (to, from) = (child.stdin.take(), child.stdout.take());
            Ok((child, to.expect("a pipe"), BufReader::new(from.expect("a pipe"))))
        };
        let mut others = (1..ranks).map(start).collect::<io::Result<Vec<_>>>()?;
        let exchange = |_: &str, own: &[u8]| -> io::Result<Vec<Vec<u8>>> {
            let mut all = vec![line_of(own)];
            for (_, _, from) in &mut others {
                all.push(line(from)?);
            }
            for (_, to, _) in &mut others {
                to.write_all(all.concat().as_bytes())?;
            }
            all.iter().map(|line| bytes_of(line)).collect()
        };
        let communicator = Communicator::join(&devices[0], 0, ranks as u32, exchange, options())?;
        Ok(Others { ranks: others, communicator: Some(communicator) })
    }

    /// Has all ranks prepare a case; the first rank's part.
    pub fn prepare(&mut self, op: Op, bytes: usize, in_graph: bool) -> Outcome<Communicator> {
        let number = Op::MOVING.iter().position(|known| known.name() == op.name());
        let number = number.expect("an op of `Op::MOVING`");
        for (_, to, _) in &mut self.ranks {
            to.write_all(&[CASE])?;
            to.write_all(format!("{number} {bytes} {}\n", u8::from(in_graph)).as_bytes())?;
        }
        let communicator = self.communicator.as_mut().expect("it is there until the end");
        Ok(communicator.split(Some(0), 0)?.expect("a color"))
    }

    /// Waits until all have prepared it, or ended it.
    pub fn answer(&mut self) -> Outcome {
        for (_, _, from) in &mut self.ranks {
            line(from)?;
        }
        Ok(())
    }

    pub fn turn(&mut self) {
        // A rank that has ended is noticed by the first rank's kernels.
        self.ranks.iter_mut().for_each(|(_, to, _)| drop(to.write_all(&[TURN])));
    }

    /// Has all ranks drop the case. To be followed by [`answer`](Others::answer) when the first rank has
    /// dropped its own: ranks drop NCCL's communicators together.
    pub fn end(&mut self) -> Outcome {
        for (_, to, _) in &mut self.ranks {
            to.write_all(&[END])?;
        }
        Ok(())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // They end when their input does.
        let children: Vec<Child> = self.ranks.drain(..).map(|(child, ..)| child).collect();
        // Ranks drop NCCL's communicators together.
        self.communicator = None;
        for mut child in children {
            let _ = child.wait();
        }
    }
}

/// The rank that this process is, if it is one.
pub fn rank() -> Option<u32> {
    env::var(RANK).ok()?.parse().ok()
}

/// Follows the first rank.
pub fn follow(rank: u32) -> ExitCode {
    match followed(rank) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rank {rank}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn followed(rank: u32) -> Outcome {
    let ranks: u32 = env::var(RANKS)?.parse()?;
    let mut input = BufReader::new(io::stdin());
    let device = Device::open(rank)?;
    let exchange = |_: &str, own: &[u8]| -> io::Result<Vec<Vec<u8>>> {
        print!("{}", line_of(own));
        (0..ranks).map(|_| line(&mut input).and_then(|line| bytes_of(&line))).collect()
    };
    let mut communicator = Communicator::join(&device, rank, ranks, exchange, options())?;
    let stream = device.stream()?;
    let mut runner: Option<(Op, Runner<'_>)> = None;
    let mut command = [0];
    while input.read_exact(&mut command).is_ok() {
        match command[0] {
            CASE => {
                let text = line(&mut input)?;
                let numbers: Vec<usize> =
                    text.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
                let op = Op::MOVING[numbers[0]];
                let part = communicator.split(Some(0), 0)?.expect("a color");
                runner = Some((op, Runner::new(part, &stream, op, numbers[1], numbers[2] != 0)?));
                println!("ready");
            }
            TURN => runner.as_mut().map_or(Ok(()), |(op, runner)| runner.run_group(*op, &stream))?,
            _ => {
                let ended: Option<Result<()>> = runner.as_mut().map(|(_, runner)| runner.finish(&stream));
                ended.transpose()?;
                runner = None;
                println!("ended");
            }
        }
    }
    Ok(())
}
