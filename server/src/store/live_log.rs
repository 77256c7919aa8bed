//! The live log of replicas: batches as they came, in one order for all of them, in the database. Also what else of live
//! data they have in common: positions of sources, which states were written down, and how live runs stand.
//!
//! Whoever appends holds the row that says where the log ends, so that positions become visible in their order and a
//! source is judged by what all replicas have kept. Everybody is told of a new end; who misses that finds it by looking.
//! Knows no line of a batch, and no state.

use super::{
    Objects, StoreError,
    database::{ANSWERS_WITHIN, DatabaseUrl, NOTICE},
    objects,
};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{
    ConnectOptions, PgPool, Postgres, Row, Transaction,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow},
};
use std::{collections::BTreeSet, str::FromStr, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Connections for live data: one appends, one listens, one reads what comes, and some are for windows and the leader.
const CONNECTIONS: u32 = 6;
/// Sources that are known at once. Of more the quarter that was silent for longest is forgotten.
const MOST_SOURCES: i64 = 65_536;

/// Where the live data of replicas are.
#[derive(Debug, Clone)]
pub struct LivePlace {
    /// The log.
    pub log: LiveLog,
    /// Whether this replica leads.
    pub leads: watch::Receiver<bool>,
    pub(super) objects: Objects,
}

impl LivePlace {
    /// Writes a state down in one of the places for it, in the bucket.
    pub async fn keep_state<T: Serialize + Send + Sync + 'static>(
        &self,
        slot: &str,
        state: Arc<T>,
    ) -> Result<(), StoreError> {
        self.objects.put_json(&objects::live_state_key(slot), state).await
    }

    /// Reads what was written down there.
    pub async fn state<T: DeserializeOwned + Send + 'static>(&self, slot: &str) -> Result<T, StoreError> {
        self.objects.get_json(&objects::live_state_key(slot)).await
    }
}

/// The log in one database.
#[derive(Debug, Clone)]
pub struct LiveLog {
    pool: PgPool,
    channel: String,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A batch of an agent or a probe.
    Batch,
    /// Somebody has removed the owner, which is a node.
    Removed,
    /// Of a newer version; passed over.
    Unknown,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// One run of one agent or process.
    pub source: String,
    /// Whose it is: the node, or the source itself for a probe.
    pub owner: String,
    /// When it arrived, by the clock of the replica that took it.
    pub received: i64,
    /// The body is gzip.
    pub gzip: bool,
    /// Lines up to and with this one were kept before.
    pub known: Option<u64>,
    /// The batch as it was sent.
    pub body: Bytes,
}

/// What is kept of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// Its name.
    pub source: String,
    /// The last line that is kept.
    pub acknowledged: u64,
    /// When it was heard of last.
    pub heard: i64,
    /// The node of an agent.
    pub node: Option<String>,
}

/// A run that goes on, as far as rows tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRunRow {
    /// The run.
    pub run: String,
    /// The key of its job.
    pub key: String,
    /// Its title.
    pub title: String,
    /// How it stands, as JSON, once the leader has said so.
    pub tick: Option<String>,
}

/// A segment of the log, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRow {
    /// Its first position.
    pub first: i64,
    /// Its size.
    pub bytes: i64,
    /// Whose batches are in it.
    pub owners: BTreeSet<String>,
}

/// An addition that has begun: nobody else adds until it has ended.
#[derive(Debug)]
pub struct Appending {
    transaction: Transaction<'static, Postgres>,
    channel: String,
    /// The end of the log so far.
    position: i64,
    segment: i64,
    segment_bytes: i64,
    /// What is kept of the sources that were asked for.
    pub known: Vec<SourceRow>,
}

/// Bytes beside the body of an entry.
const BESIDE: usize = 110;

impl LiveLog {
    /// Opens the log of a database whose tables are up to date.
    pub async fn open(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url.as_str())?.disable_statement_logging();
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(ANSWERS_WITHIN);
        // What is acknowledged must be on disk; a server that acknowledges more than that may go on to do so.
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::query(NOTICE).execute(&mut *connection).await?;
                sqlx::query(
                    "SELECT set_config('synchronous_commit', 'on', false) \
                     WHERE current_setting('synchronous_commit') = 'off'",
                )
                .execute(connection)
                .await
                .map(drop)
            })
        });
        let pool = pool.connect_lazy_with(options);
        // Messages go to a whole database, whatever the schema.
        let channel = sqlx::query_scalar("SELECT 'rankscope_' || md5(current_schema())").fetch_one(&pool).await?;
        Ok(Self { pool, channel })
    }

    /// Ends all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// The end of the log.
    pub async fn end(&self) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar("SELECT position FROM live_head").fetch_one(&self.pool).await?)
    }

    /// Begins an addition, and says what is kept of these sources.
    pub async fn append(&self, sources: &[&str]) -> Result<Appending, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let head = sqlx::query("SELECT position, segment, segment_bytes FROM live_head WHERE id = 1 FOR UPDATE")
            .fetch_one(&mut *transaction)
            .await?;
        let rows =
            sqlx::query("SELECT source, acknowledged, heard, node FROM live_sources WHERE source = ANY($1::TEXT[])")
                .bind(sources)
                .fetch_all(&mut *transaction)
                .await?;
        let known = rows.iter().map(source_row).collect::<Result<_, _>>()?;
        Ok(Appending {
            transaction,
            channel: self.channel.clone(),
            position: head.try_get("position")?,
            segment: head.try_get("segment")?,
            segment_bytes: head.try_get("segment_bytes")?,
            known,
        })
    }

    /// Entries after a position, in order, each with its own. No more than so many.
    pub fn after(&self, position: i64, most: i64) -> impl Stream<Item = Result<(i64, Entry), StoreError>> + Send + '_ {
        sqlx::query(
            "SELECT position, kind, source, owner, received, gzip, known, body FROM live_batches \
             WHERE position > $1 ORDER BY position LIMIT $2",
        )
        .bind(position)
        .bind(most)
        .fetch(&self.pool)
        .map_err(StoreError::from)
        .and_then(async |row| entry(&row))
    }

    /// Batches of some owners that arrived within a time, in order.
    pub fn of_owners<'a>(
        &'a self,
        owners: &'a [String],
        from: i64,
        to: i64,
    ) -> impl Stream<Item = Result<(i64, Entry), StoreError>> + Send + 'a {
        sqlx::query(
            "SELECT position, kind, source, owner, received, gzip, known, body FROM live_batches \
             WHERE owner = ANY($1::TEXT[]) AND received >= $2 AND received <= $3 AND kind = 'batch' ORDER BY position",
        )
        .bind(owners)
        .bind(from)
        .bind(to)
        .fetch(&self.pool)
        .map_err(StoreError::from)
        .and_then(async |row| entry(&row))
    }

    /// Hears whenever something was added, or how a live run stands has changed.
    pub async fn listen(&self) -> Result<PgListener, StoreError> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(&self.channel).await?;
        Ok(listener)
    }

    /// Where states were written down, the newest first.
    pub async fn checkpoints(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query("SELECT slot, position FROM live_checkpoints ORDER BY position DESC")
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(|row| Ok((row.try_get("slot")?, row.try_get("position")?))).collect()
    }

    /// A state is about to be written over the one in this place.
    pub async fn forget_checkpoint(&self, slot: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM live_checkpoints WHERE slot = $1").bind(slot).execute(&self.pool).await?;
        Ok(())
    }

    /// The state in this place goes up to a position.
    pub async fn checkpoint_at(&self, slot: &str, position: i64) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO live_checkpoints (slot, position) VALUES ($1, $2) \
             ON CONFLICT (slot) DO UPDATE SET position = excluded.position",
        )
        .bind(slot)
        .bind(position)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// All segments, the oldest first; the last one is open.
    pub async fn segments(&self) -> Result<Vec<SegmentRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT s.first, s.bytes, ARRAY(SELECT o.owner FROM live_segment_owners o WHERE o.first = s.first) AS owners \
             FROM live_segments s ORDER BY s.first",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                let owners: Vec<String> = row.try_get("owners")?;
                Ok(SegmentRow {
                    first: row.try_get("first")?,
                    bytes: row.try_get("bytes")?,
                    owners: owners.into_iter().collect(),
                })
            })
            .collect()
    }

    /// Removes a segment, which ends before the position `next`.
    pub async fn remove_segment(&self, first: i64, next: i64) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("DELETE FROM live_batches WHERE position >= $1 AND position < $2")
            .bind(first)
            .bind(next)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM live_segments WHERE first = $1").bind(first).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Forgets sources of which nothing was heard since, and those beyond what is kept; what was written for runs that have
    /// ended goes too.
    pub async fn tidy(&self, since: i64) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM live_sources WHERE heard < $1").bind(since).execute(&self.pool).await?;
        sqlx::query(
            "DELETE FROM live_sources WHERE (SELECT COUNT(*) FROM live_sources) > $1 AND source IN \
             (SELECT source FROM live_sources ORDER BY heard LIMIT $1 / 4)",
        )
        .bind(MOST_SOURCES)
        .execute(&self.pool)
        .await?;
        sqlx::query("DELETE FROM live_ticks WHERE run_id IN (SELECT run_id FROM live_runs WHERE ended_at IS NOT NULL)")
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Runs that go on, and how they stand.
    pub async fn open_runs(&self) -> Result<Vec<OpenRunRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT l.run_id, l.job_key, r.title, t.tick FROM live_runs l JOIN runs r ON r.id = l.run_id \
             LEFT JOIN live_ticks t ON t.run_id = l.run_id WHERE l.ended_at IS NULL ORDER BY l.started_at",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(OpenRunRow {
                    run: row.try_get("run_id")?,
                    key: row.try_get("job_key")?,
                    title: row.try_get("title")?,
                    tick: row.try_get("tick")?,
                })
            })
            .collect()
    }

    /// Writes down how a run stands, if it is there, and tells the others.
    pub async fn tick(&self, run: &str, tick: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO live_ticks (run_id, tick) SELECT id, $2 FROM runs WHERE id = $1 \
             ON CONFLICT (run_id) DO UPDATE SET tick = excluded.tick",
        )
        .bind(run)
        .bind(tick)
        .execute(&self.pool)
        .await?;
        sqlx::query("SELECT pg_notify($1, 'runs')").bind(&self.channel).execute(&self.pool).await?;
        Ok(())
    }
}

impl Appending {
    /// Adds entries, and what is kept of their sources from now on. When this returns, they are on disk. Gives the position
    /// of the last one. A segment of `segment_bytes` is full.
    pub async fn commit(
        mut self,
        entries: &[Entry],
        sources: &[SourceRow],
        segment_bytes: i64,
    ) -> Result<i64, StoreError> {
        let count = i64::try_from(entries.len()).map_err(|_| StoreError::Range("entries"))?;
        let first = self.position.saturating_add(1);
        let last = self.position.saturating_add(count);
        if self.segment_bytes >= segment_bytes {
            (self.segment, self.segment_bytes) = (first, 0);
        }
        let bytes: usize = entries.iter().map(|entry| entry.body.len() + BESIDE).sum();
        let bytes = i64::try_from(bytes).map_err(|_| StoreError::Range("bytes"))?;
        let positions: Vec<i64> = (first..=last).collect();
        let texts = |of: fn(&Entry) -> &str| entries.iter().map(of).collect::<Vec<&str>>();
        let numbers = |of: fn(&Entry) -> i64| entries.iter().map(of).collect::<Vec<i64>>();
        let known: Vec<Option<i64>> = entries.iter().map(|entry| entry.known.map(u64::cast_signed)).collect();
        let bodies: Vec<&[u8]> = entries.iter().map(|entry| &entry.body[..]).collect();
        sqlx::query(
            "INSERT INTO live_batches (position, kind, source, owner, received, gzip, known, body) \
             SELECT * FROM UNNEST($1::BIGINT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[], \
             $7::BIGINT[], $8::BYTEA[])",
        )
        .bind(positions)
        .bind(texts(|entry| entry.kind.slug()))
        .bind(texts(|entry| &entry.source))
        .bind(texts(|entry| &entry.owner))
        .bind(numbers(|entry| entry.received))
        .bind(numbers(|entry| i64::from(entry.gzip)))
        .bind(known)
        .bind(bodies)
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query(
            "INSERT INTO live_sources (source, acknowledged, heard, node) \
             SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::TEXT[]) ON CONFLICT (source) DO UPDATE \
             SET acknowledged = excluded.acknowledged, heard = excluded.heard, node = excluded.node",
        )
        .bind(sources.iter().map(|row| row.source.as_str()).collect::<Vec<_>>())
        .bind(sources.iter().map(|row| row.acknowledged.cast_signed()).collect::<Vec<_>>())
        .bind(sources.iter().map(|row| row.heard).collect::<Vec<_>>())
        .bind(sources.iter().map(|row| row.node.as_deref()).collect::<Vec<_>>())
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query(
            "INSERT INTO live_segments (first, bytes) VALUES ($1, $2) \
             ON CONFLICT (first) DO UPDATE SET bytes = live_segments.bytes + excluded.bytes",
        )
        .bind(self.segment)
        .bind(bytes)
        .execute(&mut *self.transaction)
        .await?;
        let owners: BTreeSet<&str> = entries.iter().map(|entry| entry.owner.as_str()).collect();
        sqlx::query(
            "INSERT INTO live_segment_owners (first, owner) SELECT $1, UNNEST($2::TEXT[]) ON CONFLICT DO NOTHING",
        )
        .bind(self.segment)
        .bind(owners.into_iter().collect::<Vec<_>>())
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query("UPDATE live_head SET position = $1, segment = $2, segment_bytes = $3 WHERE id = 1")
            .bind(last)
            .bind(self.segment)
            .bind(self.segment_bytes.saturating_add(bytes))
            .execute(&mut *self.transaction)
            .await?;
        // Sent when the rest is there.
        sqlx::query("SELECT pg_notify($1, 'log')").bind(&self.channel).execute(&mut *self.transaction).await?;
        self.transaction.commit().await?;
        Ok(last)
    }
}

impl EntryKind {
    fn slug(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Removed => "removed",
            Self::Unknown => "unknown",
        }
    }
}

/// Gives up what the database does not answer in time.
pub async fn in_time<T>(
    within: Duration,
    asking: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(within, asking).await.unwrap_or(Err(StoreError::Sql(sqlx::Error::PoolTimedOut)))
}

fn source_row(row: &PgRow) -> Result<SourceRow, StoreError> {
    Ok(SourceRow {
        source: row.try_get("source")?,
        acknowledged: row.try_get::<i64, _>("acknowledged")?.cast_unsigned(),
        heard: row.try_get("heard")?,
        node: row.try_get("node")?,
    })
}

fn entry(row: &PgRow) -> Result<(i64, Entry), StoreError> {
    let kind = match row.try_get("kind")? {
        "batch" => EntryKind::Batch,
        "removed" => EntryKind::Removed,
        _ => EntryKind::Unknown,
    };
    let entry = Entry {
        kind,
        source: row.try_get("source")?,
        owner: row.try_get("owner")?,
        received: row.try_get("received")?,
        gzip: row.try_get::<i64, _>("gzip")? != 0,
        known: row.try_get::<Option<i64>, _>("known")?.map(i64::cast_unsigned),
        body: row.try_get::<Vec<u8>, _>("body")?.into(),
    };
    Ok((row.try_get("position")?, entry))
}
