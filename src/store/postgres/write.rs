//! Writing a batch: which id each operation gets, and the statements that keep what is terminal.
//!
//! Invariants, in SQL and so for every gateway of the database: a row changes only while it is pending, and only by the operation that
//! owns it; an operation has one id for good. At most two statements write operations, however many share an id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use tokio_postgres::Row;

use super::arrays::{Arrays, placeholders};
use super::gathered::{Gathered, Operation, Owner};
use super::link::Link;
use super::schema::names;
use crate::ledger::columns::{ATTEMPTS, OPERATIONS, Table, Value};
use crate::ledger::store::{LateUsage, Piece, StoreError, renamed};

/// The expression of [`renamed`].
const RENAMED: &str = "(i.operation_id || '~' || i.boot_id || '-' || i.sequence)";

/// Operations that were renamed before keep that id, even when the other one with the first id was pruned since.
static WRITE_OPERATIONS: LazyLock<String> = LazyLock::new(|| {
    let id = format!(
        "CASE WHEN EXISTS (SELECT 1 FROM operations r WHERE r.operation_id = {RENAMED} \
         AND r.boot_id = i.boot_id AND r.sequence = i.sequence) THEN {RENAMED} ELSE i.operation_id END"
    );
    upsert(&OPERATIONS, &id) + " RETURNING operation_id, boot_id, sequence"
});

static WRITE_ATTEMPTS: LazyLock<String> = LazyLock::new(|| upsert(&ATTEMPTS, "i.operation_id"));

const OWNERS: &str =
    "SELECT operation_id, boot_id, sequence FROM operations WHERE operation_id = ANY($1::text[])";

const WRITE_USAGE: &str = "UPDATE operations o SET prompt_tokens = i.prompt_tokens, \
     completion_tokens = i.completion_tokens, cached_tokens = i.cached_tokens, \
     reasoning_tokens = i.reasoning_tokens, usage_partial = i.usage_partial \
     FROM UNNEST($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[]) \
     AS i(operation_id, boot_id, sequence, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, usage_partial) \
     WHERE o.operation_id = ANY(ARRAY[i.operation_id, i.operation_id || '~' || i.boot_id || '-' || i.sequence]) \
     AND o.boot_id = i.boot_id AND o.sequence = i.sequence AND o.usage_partial IS NOT FALSE";

fn upsert(table: &Table, id: &str) -> String {
    let own = table
        .columns
        .iter()
        .filter(|column| !table.key.contains(&column.name));
    let set: Vec<String> = own
        .map(|column| format!("\"{0}\" = excluded.\"{0}\"", column.name))
        .collect();
    let values = table.columns.iter().map(|column| match column.name {
        "operation_id" => id.to_owned(),
        name => format!("i.\"{name}\""),
    });
    let columns = names(table.columns.iter().map(|column| column.name));
    format!(
        "INSERT INTO {name} AS t ({columns}) SELECT {values} FROM UNNEST({arrays}) AS i({columns}) \
         ON CONFLICT ({key}) DO UPDATE SET {set} \
         WHERE t.state = 'pending' AND t.boot_id = excluded.boot_id AND t.sequence = excluded.sequence",
        name = table.name,
        values = values.collect::<Vec<_>>().join(", "),
        arrays = placeholders(table),
        key = names(table.key.iter().copied()),
        set = set.join(", "),
    )
}

impl Place {
    fn old(id: String) -> Place {
        let written = false;
        Place { id, written }
    }
}

/// Writes all of it in one transaction; gives how many rows were written.
pub(super) async fn write(link: &mut Link, pieces: &[Piece]) -> Result<u64, StoreError> {
    let gathered = Gathered::from(pieces)?;
    link.transaction(async |link| {
        let (operations, places) = write_operations(link, &gathered.operations).await?;
        let attempts = write_attempts(link, &gathered.operations, &places).await?;
        let usages = write_usages(link, &gathered.usages).await?;
        Ok(operations.saturating_add(attempts).saturating_add(usages))
    })
    .await
}

/// Where an operation is in the database.
struct Place {
    id: String,
    /// By this batch; else it was terminal before.
    written: bool,
}

/// The operations that are in the database.
type Places<'a> = BTreeMap<Owner<'a>, Place>;

/// First one operation of each id. The others wait until it is known who has the id; all but that one are renamed.
async fn write_operations<'a>(
    link: &mut Link,
    operations: &'a [Operation<'a>],
) -> Result<(u64, Places<'a>), StoreError> {
    let mut places = Places::new();
    if operations.is_empty() {
        return Ok((0, places));
    }
    let mut seen = BTreeSet::new();
    let mut first = Arrays::of(&OPERATIONS);
    for operation in operations {
        if seen.insert(operation.id) {
            first.push(operation.id, &operation.values)?;
        }
    }
    let mut written = upsert_operations(link, &first, operations, &mut places).await?;
    let left: Vec<_> = operations
        .iter()
        .filter(|operation| !places.contains_key(&operation.owner))
        .collect();
    if left.is_empty() {
        return Ok((written, places));
    }
    let given = assign(link, &left, &mut places).await?;
    let mut second = Arrays::of(&OPERATIONS);
    for (operation, id) in &given {
        second.push(id, &operation.values)?;
    }
    if !second.is_empty() {
        written = written
            .saturating_add(upsert_operations(link, &second, operations, &mut places).await?);
        settle_rest(link, &given, &mut places).await?;
    }
    Ok((written, places))
}

/// Gives the operations that are left an id each: their own to the one that has it, or that comes first when nobody has. An operation that
/// has it and was not written is terminal; it is done.
async fn assign<'a>(
    link: &mut Link,
    left: &[&'a Operation<'a>],
    places: &mut Places<'a>,
) -> Result<Vec<(&'a Operation<'a>, String)>, StoreError> {
    let asked: Vec<&str> = left.iter().map(|operation| operation.id).collect();
    let mut owners = owners(link, &asked).await?;
    let mut given = Vec::new();
    for operation in left {
        let (boot, sequence) = operation.owner;
        let own = (boot.to_owned(), sequence);
        match owners.get(operation.id) {
            Some(owner) if *owner == own => {
                places.insert(operation.owner, Place::old(operation.id.to_owned()));
                given.push((*operation, operation.id.to_owned()));
            }
            Some(_) => given.push((*operation, renamed(operation.id, boot, sequence))),
            None => {
                owners.insert(operation.id.to_owned(), own);
                given.push((*operation, operation.id.to_owned()));
            }
        }
    }
    Ok(given)
}

/// What the second statement did not write is terminal already, or its id belongs to another: then it cannot be kept.
async fn settle_rest<'a>(
    link: &mut Link,
    given: &[(&'a Operation<'a>, String)],
    places: &mut Places<'a>,
) -> Result<(), StoreError> {
    let rest: Vec<_> = given
        .iter()
        .filter(|(operation, _)| !places.contains_key(&operation.owner))
        .collect();
    if rest.is_empty() {
        return Ok(());
    }
    // It may have been renamed before, and who had its first id be gone since.
    let both = |operation: &Operation<'_>, id: &str| {
        let (boot, sequence) = operation.owner;
        [id.to_owned(), renamed(operation.id, boot, sequence)]
    };
    let asked = rest.iter().flat_map(|(operation, id)| both(operation, id));
    let asked: Vec<String> = asked.collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let owners = owners(link, &asked).await?;
    for (operation, id) in rest {
        let (boot, sequence) = operation.owner;
        let own = (boot.to_owned(), sequence);
        let mut possible = both(operation, id).into_iter();
        let Some(id) = possible.find(|id| owners.get(id) == Some(&own)) else {
            let text = "an operation's id and its second id belong to others";
            return Err(StoreError::Refused(text.to_owned()));
        };
        places.insert(operation.owner, Place::old(id));
    }
    Ok(())
}

async fn upsert_operations<'a>(
    link: &mut Link,
    arrays: &Arrays<'_>,
    operations: &'a [Operation<'a>],
    places: &mut Places<'a>,
) -> Result<u64, StoreError> {
    let rows = link.query(&WRITE_OPERATIONS, &arrays.parameters()).await?;
    let by_owner: BTreeMap<(String, i64), String> = owned(&rows)?
        .into_iter()
        .map(|(id, owner)| (owner, id))
        .collect();
    for operation in operations {
        let (boot, sequence) = operation.owner;
        if let Some(id) = by_owner.get(&(boot.to_owned(), sequence)) {
            let id = id.clone();
            places.insert(operation.owner, Place { id, written: true });
        }
    }
    Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
}

/// An id and its operation, as they are read.
type Owned = (String, (String, i64));

/// Who has these ids.
async fn owners(
    link: &mut Link,
    asked: &[&str],
) -> Result<BTreeMap<String, (String, i64)>, StoreError> {
    let rows = link.query(OWNERS, &[&asked]).await?;
    Ok(owned(&rows)?.into_iter().collect())
}

fn owned(rows: &[Row]) -> Result<Vec<Owned>, StoreError> {
    let read = rows.iter().map(|row| {
        Ok((
            row.try_get::<_, String>(0)?,
            (row.try_get::<_, String>(1)?, row.try_get::<_, i64>(2)?),
        ))
    });
    let read: Result<_, tokio_postgres::Error> = read.collect();
    read.map_err(|error| super::error::failed(&error))
}

async fn write_attempts(
    link: &mut Link,
    operations: &[Operation<'_>],
    places: &Places<'_>,
) -> Result<u64, StoreError> {
    let mut arrays = Arrays::of(&ATTEMPTS);
    // A pending version of what is settled is the past, and so are its attempts.
    let present = operations.iter().filter_map(|operation| {
        let place = places.get(&operation.owner)?;
        (place.written || !operation.is_pending()).then_some((operation, &*place.id))
    });
    let mut present: Vec<_> = present.collect();
    present.sort_by_key(|(_, id)| *id);
    for (operation, id) in present {
        for values in operation.attempts.values() {
            arrays.push(id, values)?;
        }
    }
    if arrays.is_empty() {
        return Ok(0);
    }
    link.execute(&WRITE_ATTEMPTS, &arrays.parameters()).await
}

async fn write_usages(link: &mut Link, usages: &[&LateUsage]) -> Result<u64, StoreError> {
    if usages.is_empty() {
        return Ok(0);
    }
    let ids: Vec<&str> = usages.iter().map(|usage| &*usage.operation_id).collect();
    let boots: Vec<&str> = usages.iter().map(|usage| &*usage.boot_id).collect();
    let sequences = usages.iter().map(|usage| usage.sequence);
    let sequences: Vec<i64> = sequences
        .map(|sequence| i64::try_from(sequence).unwrap_or(i64::MAX))
        .collect();
    let values: Vec<_> = usages.iter().map(|usage| usage.values()).collect();
    let count = |place: usize| -> Vec<Option<i64>> {
        let column = values.iter().map(|row| match row.get(place) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        });
        column.collect()
    };
    let (prompt, completion, cached, reasoning) = (count(0), count(1), count(2), count(3));
    let partial: Vec<bool> = usages.iter().map(|usage| usage.partial).collect();
    link.execute(
        WRITE_USAGE,
        &[
            &ids,
            &boots,
            &sequences,
            &prompt,
            &completion,
            &cached,
            &reasoning,
            &partial,
        ],
    )
    .await
}
