//! Exports of Nsight Systems (`nsys export --type sqlite`): the calls that NCCL marks with NVTX since 2.19, of one or many processes.
//!
//! The tables are those of its User Guide ("SQLite Schema Reference"); an export has a payload as JSON or as its bytes. The fields of a
//! payload are in src/include/nvtx_payload_schemas.h of NCCL (communicators since 2.25), before in its src/collectives.cc. Sizes are the
//! count argument in bytes. A range lasts as long as the host takes to enqueue, so calls have no duration.

use crate::trace::call::{
    CallDetail, CallKind, Membership, Named, Process, ProcessCall, ProcessTrace, TracedCall, bytes_of_count, named,
};
use commgauge_base::host;
use commgauge_base::units::{Bytes, counted};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// NCCL before 2.25 names some sizes `Bytes`.
const SIZES: [&str; 2] = ["Message size [bytes]", "Bytes"];

/// Where launchers tell a process its rank.
const RANK_VARIABLES: [&str; 5] = ["RANK=", "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "SLURM_PROCID="];

const NO_RANGES: &str = "is an SQLite file without ranges of NCCL; accepted: of a job with NCCL 2.19 or later and without NCCL_NVTX_DISABLE, recorded by `nsys profile --trace=nvtx,cuda`, exported by `nsys export --type sqlite --include-blobs=true`";

const UNSIZED: &str = "without its size (NCCL before 2.19, or an export without --include-blobs=true)";

/// A field of a payload: its name, type and place.
type Field = (String, i64, usize);

/// A process, and the name of one of its communicators, empty where NCCL does not tell it.
type Communicator = (Process, String);

/// A range of NCCL that moves data.
struct Range {
    of: Communicator,
    kind: CallKind,
    bytes: Bytes,
    detail: CallDetail,
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    host: String,
    /// Names of ranges, and payloads, by identifier.
    texts: HashMap<i64, Vec<u8>>,
    /// By domain and schema.
    schemas: HashMap<(i64, i64), Vec<Field>>,
    /// Rank and ranks of processes in communicators; none if the process has several.
    places: BTreeMap<Communicator, Option<(u32, u32)>>,
    ranges: Vec<Range>,
    ranges_of_nccl: usize,
    trace: ProcessTrace,
}

/// Reads an export. A truncated or damaged one is read up to that point, with a note.
///
/// # Errors
/// The problem, to follow the name of the file.
pub(super) fn read(path: &Path) -> Result<ProcessTrace, String> {
    let mut reading = Reading { host: path.to_string_lossy().into_owned(), ..Reading::default() };
    let problem = Database::open(path)?.read(&mut reading).err();
    if reading.ranges_of_nccl == 0 {
        return Err(problem.unwrap_or_else(|| NO_RANGES.to_owned()));
    }
    let used = counted(reading.ranges_of_nccl, "range");
    reading.trace.notes.extend(problem.map(|problem| format!("the file {problem}, after {used}, which are used")));
    Ok(reading.finish())
}

impl Reading {
    fn take_environment(&mut self, row: &[Value]) {
        let [Value::Bytes(name), Value::Bytes(value)] = row else { return };
        let value = String::from_utf8_lossy(value);
        if *name == b"Hostname" {
            self.host = value.into_owned();
        } else if [&b"DeviceEnvironment"[..], b"Environment"].contains(name) {
            let rank = |name: &&str| value.split(';').find_map(|variable| variable.strip_prefix(*name)?.parse().ok());
            self.trace.rank = RANK_VARIABLES.iter().find_map(rank);
        }
    }

    fn take_range(&mut self, row: &[Value]) {
        let [start, thread, text, text_id, json, json_id, payload] = row else { return };
        let Some(name) = self.text(text, text_id).and_then(name_in_nccl).map(str::to_owned) else { return };
        let fields = match (self.text(json, json_id), payload) {
            (Some(json), _) => fields_of_json(json),
            (None, Value::Bytes(payload)) => self.fields_of_bytes(payload).unwrap_or_default(),
            _ => BTreeMap::new(),
        };
        self.ranges_of_nccl += 1;
        let field = |name: &str| fields.get(name).copied();
        let small = |name: &str| field(name).and_then(|value| u32::try_from(value).ok());
        // The lower 24 bits are the thread ("Serialized Process and Thread Identifiers").
        let process = format!("{}:{}", self.host, (thread.integer().unwrap_or(0) >> 24) & 0xff_ffff);
        let communicator = field("NCCL communicator ID").filter(|id| *id != 0).map(|id| format!("{id:#x}"));
        let of = (process, communicator.unwrap_or_default());
        if let Some(place) = small("Rank").zip(small("No. of ranks")).filter(|_| !of.1.is_empty()) {
            let known = self.places.entry(of.clone()).or_insert(Some(place));
            *known = known.filter(|known| *known == place);
        }
        let begin_nanoseconds = start.integer().and_then(|start| u64::try_from(start).ok());
        let detail = CallDetail { begin_nanoseconds, peer: small("Peer rank"), ..CallDetail::default() };
        match (named(&name), SIZES.iter().find_map(|name| field(name)).map(Bytes)) {
            (Named::Call(kind), Some(bytes)) => self.ranges.push(Range { of, kind, bytes, detail }),
            (Named::Call(_), None) => self.trace.skip_unknown(format!("nccl{name} {UNSIZED}")),
            (_, Some(_)) => self.trace.skip_unknown(format!("nccl{name}")),
            _ => {}
        }
    }

    /// A text that a row has itself, or by its identifier.
    fn text<'a>(&'a self, text: &Value<'a>, identifier: &Value) -> Option<&'a [u8]> {
        match text {
            Value::Bytes(text) => Some(*text),
            _ => self.texts.get(&identifier.integer()?).map(Vec::as_slice),
        }
    }

    /// A payload in bytes: a head of 32 B with domain, schema and length, then the structure that the schema describes.
    fn fields_of_bytes(&self, payload: &[u8]) -> Option<BTreeMap<String, u64>> {
        let number = |at: usize, bytes: usize| {
            let bytes = payload.get(at..at.checked_add(bytes)?)?;
            Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let fields = self.schemas.get(&(number(0, 4)? as i64, number(8, 4)? as i64))?;
        // Types of nvToolsExtPayload.h: uint64_t and size_t; the others that are used are int.
        let value = |(name, kind, at): &Field| {
            Some((name.clone(), number(at.checked_add(32)?, if matches!(kind, 18 | 22) { 8 } else { 4 })?))
        };
        Some(fields.iter().filter_map(value).collect())
    }

    fn finish(self) -> ProcessTrace {
        let Reading { mut places, ranges, mut trace, .. } = self;
        let mut blocks = 0;
        for Range { of, kind, bytes, detail } in ranges {
            // No ranks: its creation was not recorded.
            let Some((_, ranks)) = *places.entry(of.clone()).or_insert(Some((0, 0))) else {
                trace.skip_unknown(format!("{kind} of a process with several ranks of a communicator"));
                continue;
            };
            let total = bytes_of_count(kind, bytes, ranks.max(1)).unwrap_or(bytes);
            blocks += usize::from(ranks == 0 && bytes_of_count(kind, Bytes(1), 2) != Some(Bytes(1)));
            let call = TracedCall { detail, ..TracedCall::new(kind, None, total) };
            trace.calls.push(ProcessCall { process: of.0, communicator: of.1, call });
        }
        if blocks > 0 {
            trace.notes.push(format!("{} on communicators of unknown size, whose creation was not recorded: the size is that of one rank's block", counted(blocks, "call")));
        }
        let membership = |((process, communicator), place): (Communicator, Option<(u32, u32)>)| {
            place.map(|(rank, ranks)| Membership { process, communicator, rank, ranks })
        };
        trace.memberships = places.into_iter().filter_map(membership).collect();
        trace
    }
}

/// `AllReduce` of `ncclAllReduce`.
fn name_in_nccl(text: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(text).ok()?.strip_prefix("nccl")?;
    (name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric)).then_some(name)
}

fn fields_of_json(json: &[u8]) -> BTreeMap<String, u64> {
    let fields: BTreeMap<String, serde_json::Value> = serde_json::from_slice(json).unwrap_or_default();
    fields.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

// A database of SQLite, only read (sqlite.org/fileformat2.html): rows of its tables, page by page, as it may be larger than memory.

/// How such a file begins.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// Bytes of the longest row that is read; of a longer one only the columns before count.
const LONGEST_ROW: usize = 1 << 20;

/// Columns of a row that are read.
const MOST_COLUMNS: usize = 100;

struct Database {
    file: File,
    page_bytes: usize,
    /// Without the bytes at the end of a page that extensions reserve.
    usable: usize,
    pages: u64,
}

/// The value of a column; numbers with a fraction are not needed.
#[derive(Clone, Copy)]
enum Value<'a> {
    Other,
    Integer(i64),
    /// A text or bytes.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn integer(&self) -> Option<i64> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }
}

impl Database {
    fn open(path: &Path) -> Result<Database, String> {
        let cannot = |cause: std::io::Error| format!("cannot be read: {cause}");
        let file = host::open(path).map_err(cannot)?;
        let mut head = [0; 100];
        file.read_exact_at(&mut head, 0).map_err(cannot)?;
        if !head.starts_with(MAGIC) {
            return Err("is a compressed database; accepted: the file that gunzip makes of it".to_owned());
        }
        if head[18..20].contains(&2) {
            return Err("is a database whose last rows may be in a write-ahead log; accepted: after `sqlite3 FILE 'PRAGMA journal_mode=DELETE'`".to_owned());
        }
        let page_bytes = usize::from(u16::from_be_bytes([head[16], head[17]]));
        let page_bytes = if page_bytes == 1 { 1 << 16 } else { page_bytes };
        let usable = page_bytes.saturating_sub(usize::from(head[20]));
        if !page_bytes.is_power_of_two() || usable < 480 {
            return Err(format!("is a truncated or damaged database: its head says pages of {page_bytes} B"));
        }
        let pages = file.metadata().map_err(cannot)?.len() / page_bytes as u64;
        Ok(Database { file, page_bytes, usable, pages })
    }

    fn read(&self, reading: &mut Reading) -> Result<(), String> {
        self.each("TARGET_INFO_SYSTEM_ENV", "name value", &mut |row| reading.take_environment(row))?;
        self.each("StringIds", "id value", &mut |row| match row {
            [Value::Integer(id), Value::Bytes(text)] if text.starts_with(b"{") || name_in_nccl(text).is_some() => {
                reading.texts.insert(*id, text.to_vec());
            }
            _ => {}
        })?;
        self.each("NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId schemaId type offset name", &mut |row| {
            if let [domain, schema, kind, offset, Value::Bytes(name)] = row {
                let [domain, schema, kind, offset] =
                    [domain, schema, kind, offset].map(|value| value.integer().unwrap_or(0));
                let field = (String::from_utf8_lossy(name).into_owned(), kind, offset as usize);
                reading.schemas.entry((domain, schema)).or_default().push(field);
            }
        })?;
        let columns = "start globalTid text textId jsonText jsonTextId binaryData";
        self.each("NVTX_EVENTS", columns, &mut |row| reading.take_range(row))
    }

    /// Passes on columns of the rows of a table, if there is such a table.
    fn each(&self, table: &str, columns: &str, take: &mut dyn FnMut(&[Value])) -> Result<(), String> {
        let mut found = None;
        self.rows(1, &mut |row| match row {
            [_, Value::Bytes(name), _, Value::Integer(root), Value::Bytes(made), ..] if *name == table.as_bytes() => {
                found = Some((*root as u64, columns_of(&String::from_utf8_lossy(made))));
            }
            _ => {}
        })?;
        let Some((root, all)) = found else { return Ok(()) };
        let places: Vec<_> = columns.split(' ').map(|column| all.iter().position(|name| name == column)).collect();
        self.rows(root, &mut |row| {
            let value = |place: &Option<usize>| place.and_then(|at| row.get(at).copied()).unwrap_or(Value::Other);
            take(&places.iter().map(value).collect::<Vec<_>>());
        })
    }

    /// Passes on the rows of a table. A page is in one place only, so that damaged files end as well.
    fn rows(&self, root: u64, take: &mut dyn FnMut(&[Value])) -> Result<(), String> {
        let (mut left, mut unread) = (vec![root], self.pages);
        while let Some(number) = left.pop() {
            // The head of the file is on the first page.
            let head = if number == 1 { 100 } else { 0 };
            let mut visit = || {
                let page = self.page(number, &mut unread)?;
                let pointer = |at: usize| big_endian(&page, at, 2).map(|at| at as usize);
                match (page[head], pointer(head + 3)?) {
                    (5, cells) => {
                        left.push(big_endian(&page, head + 8, 4)?);
                        for cell in (0..cells).rev() {
                            left.push(big_endian(&page, pointer(head + 12 + 2 * cell)?, 4)?);
                        }
                        Some(())
                    }
                    (13, cells) => (0..cells).try_for_each(|cell| {
                        let (row_id, row) = self.row(&page, pointer(head + 8 + 2 * cell)?, &mut unread)?;
                        take(&values(row_id, &row));
                        Some(())
                    }),
                    _ => None,
                }
            };
            visit().ok_or_else(|| format!("is a truncated or damaged database: page {number} cannot be read"))?;
        }
        Ok(())
    }

    fn page(&self, number: u64, unread: &mut u64) -> Option<Vec<u8>> {
        *unread = unread.checked_sub(1)?;
        let mut page = vec![0; self.page_bytes];
        self.file.read_exact_at(&mut page, number.checked_sub(1)?.checked_mul(self.page_bytes as u64)?).ok()?;
        Some(page)
    }

    /// The number and the bytes of a row of a page, some of which may be on pages of their own.
    fn row(&self, page: &[u8], at: usize, unread: &mut u64) -> Option<(i64, Vec<u8>)> {
        let (bytes, at) = varint(page, at)?;
        let (row_id, at) = varint(page, at)?;
        let (bytes, most, least) = (usize::try_from(bytes).ok()?, self.usable - 35, (self.usable - 12) * 32 / 255 - 23);
        let here = if bytes <= most { bytes } else { least + (bytes - least) % (self.usable - 4) };
        let here = if here <= most { here } else { least };
        let mut row = page.get(at..at + here)?.to_vec();
        let mut next = big_endian(page, at + here, 4);
        while row.len() < bytes.min(LONGEST_ROW) {
            let more = self.page(next?, unread)?;
            next = big_endian(&more, 0, 4);
            row.extend(&more[4..self.usable.min(4 + bytes - row.len())]);
        }
        Some((row_id, row))
    }
}

/// The names of columns in `CREATE TABLE T (start INTEGER NOT NULL, -- when it began, ...)`.
fn columns_of(made: &str) -> Vec<String> {
    let lines: String = made.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let columns = lines.split_once('(').map_or("", |(_, columns)| columns).split(',');
    let quotes = |c: char| c.is_whitespace() || "\"`[]".contains(c);
    columns.map(|column| column.trim_matches(quotes).split(quotes).next().unwrap_or_default().to_owned()).collect()
}

/// The values of a row: a head with their types, then the values. A key that is the number of the row is not in the row itself.
fn values(row_id: i64, row: &[u8]) -> Vec<Value<'_>> {
    let mut values = Vec::new();
    let Some((head, mut at)) = varint(row, 0) else { return values };
    let mut place = head as usize;
    while let Some((kind, next)) = varint(row, at).filter(|_| at < head as usize && values.len() < MOST_COLUMNS) {
        let kind = kind as usize;
        let length = match kind {
            0 | 8..12 => 0,
            1..5 => kind,
            5 => 6,
            6 | 7 => 8,
            _ => (kind - 12) / 2,
        };
        let end = place.saturating_add(length);
        values.push(match (kind, row.get(place..end)) {
            (0, _) if values.is_empty() => Value::Integer(row_id),
            (8 | 9, _) => Value::Integer(kind as i64 - 8),
            (1..=6, Some(bytes)) => {
                let sign = -i64::from(bytes[0] >> 7);
                Value::Integer(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
            }
            (12.., Some(bytes)) => Value::Bytes(bytes),
            _ => Value::Other,
        });
        (at, place) = (next, end);
    }
    values
}

/// A number of up to nine bytes, the highest bit of which says whether more follow, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.get(at..)?.iter().take(9).enumerate() {
        let (bits, ends) = if index == 8 { (8, true) } else { (7, byte & 0x80 == 0) };
        number = number << bits | i64::from(if index == 8 { *byte } else { byte & 0x7f });
        if ends {
            return Some((number, at + index + 1));
        }
    }
    None
}

fn big_endian(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
