//! What people add to a run's checklist: notes with their own status, and the run after the fix. Rows are only added.

use super::{DbRow, Store, StoreError, new_id, now};
use rankscope_model::{Item, ItemNote, OwnStatus, UnixMicros};
use sqlx::Row;

impl Store {
    /// Adds an entry to an item's history.
    pub async fn add_item_note(
        &self,
        run: &str,
        item: Item,
        status: Option<OwnStatus>,
        note: &str,
        author: &str,
    ) -> Result<ItemNote, StoreError> {
        self.run(run).await?;
        let entry = ItemNote {
            id: new_id(),
            item,
            status,
            note: note.to_owned(),
            author: author.to_owned(),
            created_at: now(),
        };
        sqlx::query(
            "INSERT INTO item_notes (id, run_id, item, status, note, author, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(&entry.id)
        .bind(run)
        .bind(item.slug())
        .bind(status.map(OwnStatus::slug))
        .bind(note)
        .bind(author)
        .bind(entry.created_at.0)
        .execute(&self.pool)
        .await?;
        Ok(entry)
    }

    /// How many entries a run's histories hold.
    pub async fn count_item_notes(&self, run: &str) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM item_notes WHERE run_id = $1")
            .bind(run)
            .fetch_one(&self.pool)
            .await?;
        super::to_u64(count, "count")
    }

    /// The histories of a run's items, oldest entry first.
    pub async fn item_notes(&self, run: &str) -> Result<Vec<ItemNote>, StoreError> {
        self.run(run).await?;
        let rows = sqlx::query(
            "SELECT id, item, status, note, author, created_at FROM item_notes WHERE run_id = $1 \
             ORDER BY created_at, id",
        )
        .bind(run)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(item_note).collect()
    }

    /// Names the run that is to prove the fix of `run`. Both must exist.
    pub async fn attach_after(&self, run: &str, after: &str) -> Result<(), StoreError> {
        self.run(run).await?;
        self.run(after).await?;
        sqlx::query("INSERT INTO after_runs (id, run_id, after_run_id, created_at) VALUES ($1, $2, $3, $4)")
            .bind(new_id())
            .bind(run)
            .bind(after)
            .bind(now().0)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The run that is to prove the fix of `run`, if one was named and still exists.
    pub async fn after_run(&self, run: &str) -> Result<Option<String>, StoreError> {
        self.run(run).await?;
        Ok(sqlx::query_scalar(
            "SELECT after_run_id FROM after_runs WHERE run_id = $1 ORDER BY created_at DESC, id DESC LIMIT 1",
        )
        .bind(run)
        .fetch_optional(&self.pool)
        .await?)
    }
}

fn item_note(row: &DbRow) -> Result<ItemNote, StoreError> {
    let item = Item::from_slug(row.try_get("item")?).ok_or(StoreError::Range("item"))?;
    let status = row.try_get::<Option<String>, _>("status")?;
    let status = status.map(|slug| OwnStatus::from_slug(&slug).ok_or(StoreError::Range("status"))).transpose()?;
    Ok(ItemNote {
        id: row.try_get("id")?,
        item,
        status,
        note: row.try_get("note")?,
        author: row.try_get("author")?,
        created_at: UnixMicros(row.try_get("created_at")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::runs::tests::report;
    use std::sync::Arc;

    #[tokio::test]
    async fn histories_grow_and_go_with_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        for id in ["a", "b"] {
            store.create_run(vec![], report(id, id, 1, "s"), Arc::default()).await.unwrap();
        }
        let item = Item::DistributedSampler;
        store.add_item_note("a", item, Some(OwnStatus::Fails), "seen in the script", "Ada").await.unwrap();
        store.add_item_note("a", item, None, "  spaces stay ", "Bo").await.unwrap();
        store.add_item_note("a", Item::Verified, Some(OwnStatus::Mended), "", "Ada").await.unwrap();
        let notes = store.item_notes("a").await.unwrap();
        let said: Vec<_> = notes.iter().map(|note| (note.item, note.status, note.author.as_str())).collect();
        assert_eq!(
            said,
            [
                (item, Some(OwnStatus::Fails), "Ada"),
                (item, None, "Bo"),
                (Item::Verified, Some(OwnStatus::Mended), "Ada")
            ]
        );
        assert_eq!(store.count_item_notes("a").await.unwrap(), 3);
        assert!(store.item_notes("b").await.unwrap().is_empty());
        assert!(matches!(store.add_item_note("nobody", item, None, "x", "y").await, Err(StoreError::Missing)));
        assert!(matches!(store.item_notes("nobody").await, Err(StoreError::Missing)));

        assert_eq!(store.after_run("a").await.unwrap(), None);
        store.attach_after("a", "b").await.unwrap();
        assert_eq!(store.after_run("a").await.unwrap().as_deref(), Some("b"));
        assert!(matches!(store.attach_after("a", "nobody").await, Err(StoreError::Missing)));
        store.delete_run("b").await.unwrap();
        assert_eq!(store.after_run("a").await.unwrap(), None, "a deleted run proves nothing");
        store.delete_run("a").await.unwrap();
        assert_eq!(store.count_item_notes("a").await.unwrap(), 0);
    }
}
