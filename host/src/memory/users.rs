//! Which streams have used an allocation, and whom the next one has to come behind.
//!
//! A use is told before its work is queued, and with several threads other uses may come between the two. So a stream is
//! forgotten only when no such work of it can be left:
//!
//! * An exclusive use has borrowed the whole buffer, and every call that used it before is over.
//! * Nobody has a handle to the stream any more, so nobody is in a call that queues on it.
//!
//! Two parts of one buffer ([`split_at_mut`](crate::DeviceViewMut::split_at_mut)) are exclusive to their own elements alone.

use crate::error::Result;
use crate::stream::Stream;

/// Readers that are remembered before the driver is asked which of them are done.
const MANY: usize = 8;

/// Puts the first stream behind the second.
pub(crate) type Order = fn(&Stream, &Stream) -> Result<()>;

/// What a use has borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Borrowed {
    /// The buffer: nobody else writes any of it meanwhile, or uses any of it when this use writes.
    Whole,
    /// A part: others may write other parts.
    Part,
}

/// No stream is in a list twice.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// Streams that wrote (or allocated), the last one at the end. The earlier ones wrote other parts of the buffer.
    writers: Vec<Stream>,
    /// Streams that have read since, each behind all of those writes.
    readers: Vec<Stream>,
    /// Other streams that the next writer has to come behind.
    others: Vec<Stream>,
}

impl Users {
    /// Of what `writer` has written or allocated.
    pub(crate) fn of(writer: &Stream) -> Self {
        Users { writers: vec![writer.remembered()], ..Self::default() }
    }

    /// Call before `stream` gets work that reads the allocation.
    pub(crate) fn before_read(&mut self, stream: &Stream, borrowed: Borrowed, order: Order) -> Result<()> {
        let alone = matches!(&self.writers[..], [writer] if writer == stream);
        if alone || self.readers.contains(stream) {
            return Ok(());
        }
        self.writers.iter().try_for_each(|writer| order(stream, writer))?;
        if borrowed == Borrowed::Part {
            // Writes of the other parts may not be queued yet: the next read has to come behind the writers again.
            if !self.writers.contains(stream) {
                add(&mut self.others, stream);
            }
        } else if self.writers.len() > 1 {
            // All writes are queued, and this stream is behind them: so is who waits for it.
            let before = std::mem::replace(&mut self.writers, vec![stream.remembered()]);
            before.iter().filter(|writer| *writer != stream).for_each(|writer| add(&mut self.others, writer));
        } else {
            self.readers.push(stream.remembered());
            self.others.retain(|other| other != stream);
        }
        self.forget_the_gone();
        Ok(())
    }

    /// Call before `stream` gets work that writes the allocation.
    pub(crate) fn before_write(&mut self, stream: &Stream, borrowed: Borrowed, order: Order) -> Result<()> {
        // Who is out of hand has queued all that it ever will, which this stream is behind afterwards. Asked beforehand: others may queue
        // work, and give their handles away, while the driver puts the streams in order.
        let gone: Vec<u64> = self.all().filter(|earlier| !earlier.is_in_hand()).map(Stream::id).collect();
        self.all().try_for_each(|earlier| order(stream, earlier))?;
        if borrowed == Borrowed::Whole {
            *self = Users::of(stream);
            return Ok(());
        }
        let Users { writers, readers, others } = self;
        let lists = [writers, readers, others];
        lists.into_iter().for_each(|list| list.retain(|earlier| !gone.contains(&earlier.id())));
        self.write_part(stream);
        Ok(())
    }

    /// Makes `stream` the last writer, of a part of the allocation that others do not use now.
    fn write_part(&mut self, stream: &Stream) {
        for reader in std::mem::take(&mut self.readers) {
            add(&mut self.others, &reader);
        }
        self.others.retain(|other| other != stream);
        self.writers.retain(|writer| writer != stream);
        self.writers.push(stream.remembered());
    }

    /// Forgets readers whose handles are gone and that a writer's stream has been put behind since, at the end of a scope say; where they
    /// are many, as of what is never written, also those that are done.
    fn forget_the_gone(&mut self) {
        let Users { writers, readers, others } = self;
        let many = readers.len() + others.len() > MANY;
        let is_over = |reader: &Stream| {
            writers.iter().any(|writer| writer.comes_after(reader)) || (many && reader.is_done())
        };
        let matters = |reader: &Stream| reader.is_in_hand() || !is_over(reader);
        readers.retain(matters);
        others.retain(matters);
    }

    /// All streams whose work on the allocation may still go on.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Stream> {
        self.writers.iter().chain(&self.readers).chain(&self.others)
    }

    /// The stream that wrote last (or allocated).
    pub(crate) fn writer(&self) -> Option<&Stream> {
        self.writers.last()
    }

    /// The one stream that everything so far is ordered on.
    pub(crate) fn sole(&self) -> Option<&Stream> {
        let mut all = self.all();
        all.next().filter(|_| all.next().is_none())
    }
}

fn add(list: &mut Vec<Stream>, stream: &Stream) {
    if !list.contains(stream) {
        list.push(stream.remembered());
    }
}
