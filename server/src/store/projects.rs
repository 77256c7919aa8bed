//! Which project a run belongs to, and which runs somebody sees. Projects themselves are kept by `accounts`.

use super::{Store, StoreError, database::Sql};

/// Whose runs a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sees {
    /// Every run.
    All,
    /// The runs of these projects.
    Projects(Vec<String>),
}

impl Sees {
    /// Whether runs of this project are among them.
    pub fn has(&self, project: &str) -> bool {
        match self {
            Self::All => true,
            Self::Projects(projects) => projects.iter().any(|seen| seen == project),
        }
    }

    /// Narrows a query for runs `r`.
    pub(super) fn narrow(&self, sql: &mut Sql) {
        match self {
            Self::All => {}
            Self::Projects(projects) if projects.is_empty() => {
                sql.push(" AND 1 = 0");
            }
            Self::Projects(projects) => {
                for (n, project) in projects.iter().enumerate() {
                    sql.push(if n == 0 { " AND r.project_id IN (" } else { ", " }).bind(project);
                }
                sql.push(")");
            }
        }
    }
}

impl Store {
    /// The project of a run.
    pub async fn project_of_run(&self, run: &str) -> Result<String, StoreError> {
        Ok(sqlx::query_scalar("SELECT project_id FROM runs WHERE id = $1").bind(run).fetch_one(&self.pool).await?)
    }

    /// The run that a share shows.
    pub async fn run_of_share(&self, share: &str) -> Result<String, StoreError> {
        Ok(sqlx::query_scalar("SELECT run_id FROM shares WHERE id = $1").bind(share).fetch_one(&self.pool).await?)
    }

    /// Moves a run to another project, which must exist.
    pub async fn move_run(&self, run: &str, project: &str) -> Result<(), StoreError> {
        let sql = "UPDATE runs SET project_id = $1 WHERE id = $2 AND EXISTS (SELECT 1 FROM projects WHERE id = $1)";
        let mut transaction = self.database.begin().await?;
        let moved = sqlx::query(sql).bind(project).bind(run).execute(&mut *transaction).await?;
        transaction.commit().await?;
        if moved.rows_affected() == 0 { Err(StoreError::Missing) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{accounts::Accounts, store::runs::tests::report};
    use std::sync::Arc;

    #[tokio::test]
    async fn runs_from_before_there_were_accounts_belong_to_the_default_project() {
        let folder = tempfile::tempdir().unwrap();
        let url = crate::store::testing::url_for(folder.path()).await;
        let database = crate::store::connect(folder.path(), url.as_ref(), 1).await.unwrap();
        let pool = database.pool();
        // The last version without accounts.
        sqlx::migrate!().run_to(10, pool).await.unwrap();
        sqlx::query("INSERT INTO runs (id, title, created_at, version) VALUES ('old', 'before', 1, 1)")
            .execute(pool)
            .await
            .unwrap();
        pool.close().await;
        let store = Store::open(folder.path()).await.unwrap();
        assert_eq!(store.project_of_run("old").await.unwrap(), "default");
        assert!(!Accounts::of(&store).is_set_up().await.unwrap());
        store.create_run(vec![], report("new", "after", 1, "s"), Arc::default()).await.unwrap();
        store.close().await;
        drop(store);
        Store::open(folder.path()).await.unwrap();
    }

    #[tokio::test]
    async fn runs_are_listed_for_members_only_and_move() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let other = Accounts::of(&store).add_project("other").await.unwrap().id;
        store.create_run(vec![], report("a", "first", 1, "s"), Arc::default()).await.unwrap();
        store.create_run_in(&other, vec![], report("b", "second", 1, "s"), Arc::default()).await.unwrap();
        let lost = store.create_run_in("nowhere", vec![], report("c", "third", 1, "s"), Arc::default()).await;
        assert!(matches!(lost, Err(StoreError::Missing)));
        assert_eq!(store.project_of_run("a").await.unwrap(), "default");
        let listed = async |sees: Sees, query: Option<&str>| {
            let runs = store.runs_seen(&sees, query, 10).await.unwrap();
            runs.into_iter().map(|run| run.run.id).collect::<Vec<_>>()
        };
        let of = |projects: &[&str]| Sees::Projects(projects.iter().map(ToString::to_string).collect());
        assert_eq!(listed(Sees::All, None).await, ["b", "a"]);
        assert_eq!(listed(of(&[&other]), None).await, ["b"]);
        assert_eq!(listed(of(&[&other, "default"]), Some("first")).await, ["a"]);
        assert_eq!(listed(of(&[&other]), Some("' OR 1=1 --")).await, Vec::<String>::new());
        assert_eq!(listed(of(&["default') OR ('1'='1"]), None).await, Vec::<String>::new());
        assert_eq!(listed(of(&[]), None).await, Vec::<String>::new());
        store.move_run("a", &other).await.unwrap();
        assert_eq!(store.project_of_run("a").await.unwrap(), other);
        assert!(matches!(store.move_run("a", "nowhere").await, Err(StoreError::Missing)));
        assert!(matches!(store.project_of_run("nobody").await, Err(StoreError::Missing)));
        let share = store.create_share("a", None, None).await.unwrap();
        assert_eq!(store.run_of_share(&share.info.id).await.unwrap(), "a");
    }
}
