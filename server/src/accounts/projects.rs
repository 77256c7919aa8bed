//! Projects group runs; whoever is a member sees them.

use super::{Accounts, Role, User, UserName};
use crate::{
    errors::{Problem, Result},
    intake::clean_line,
    store::{DbRow, StoreError, new_id, now, to_u64},
};
use rankscope_model::UnixMicros;
use sqlx::Row;

/// The project of runs for which none was chosen. It is always there.
pub const DEFAULT_PROJECT: &str = "default";

/// Longest name of a project, in characters.
const MAX_NAME: usize = 80;

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Stays the same for ever.
    pub id: String,
    /// As people call it.
    pub name: String,
    /// When it was made.
    pub created_at: UnixMicros,
    /// Its runs.
    pub runs: u64,
}

/// A member of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The user.
    pub user: String,
    /// The user's name.
    pub name: String,
    /// What the member is there.
    pub role: Role,
}

/// A project as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The project.
    pub project: String,
    /// The project's name.
    pub name: String,
    /// What the member is there.
    pub role: Role,
}

fn project_name(text: &str) -> Result<String> {
    clean_line(text, MAX_NAME).ok_or_else(|| Problem::invalid("A project needs a name."))
}

fn role(text: &str) -> Result<Role, StoreError> {
    Role::from_slug(text).ok_or(StoreError::Range("role"))
}

impl Accounts {
    /// Makes a project without members.
    pub async fn add_project(&self, name: &str) -> Result<Project> {
        let made = Project { id: new_id(), name: project_name(name)?, created_at: now(), runs: 0 };
        let inserted = sqlx::query(
            "INSERT INTO projects (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
        )
        .bind(&made.id)
        .bind(&made.name)
        .bind(made.created_at.0)
        .execute(&self.pool)
        .await
        .map_err(StoreError::from)?;
        if inserted.rows_affected() == 0 { Err(Self::name_taken()) } else { Ok(made) }
    }

    fn name_taken() -> Problem {
        Problem::invalid("There is a project of this name already.")
    }

    /// All projects by name.
    pub async fn projects(&self) -> Result<Vec<Project>, StoreError> {
        let rows = sqlx::query(
            "SELECT p.id, p.name, p.created_at, (SELECT COUNT(*) FROM runs r WHERE r.project_id = p.id) AS runs \
             FROM projects p ORDER BY p.name, p.id",
        )
        .fetch_all(&self.pool)
        .await?;
        let project = |row: &DbRow| {
            Ok(Project {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                created_at: UnixMicros(row.try_get("created_at")?),
                runs: to_u64(row.try_get("runs")?, "runs")?,
            })
        };
        rows.iter().map(project).collect()
    }

    /// The name of a project.
    pub async fn project_name(&self, project: &str) -> Result<String, StoreError> {
        Ok(sqlx::query_scalar("SELECT name FROM projects WHERE id = $1").bind(project).fetch_one(&self.pool).await?)
    }

    /// Gives a project another name.
    pub async fn rename_project(&self, project: &str, name: &str) -> Result<()> {
        let name = project_name(name)?;
        let sql = "UPDATE projects SET name = $1 WHERE id = $2 AND NOT EXISTS \
            (SELECT 1 FROM projects o WHERE o.name = $1 AND o.id <> $2)";
        if self.change(sqlx::query(sql).bind(name).bind(project)).await? > 0 {
            return Ok(());
        }
        self.project_name(project).await?;
        Err(Self::name_taken())
    }

    /// Removes a project that holds no run, with its memberships and tokens.
    pub async fn remove_project(&self, project: &str) -> Result<()> {
        let sql = "DELETE FROM projects WHERE id = $1 AND id <> $2 AND NOT EXISTS \
            (SELECT 1 FROM runs r WHERE r.project_id = $1)";
        if self.change(sqlx::query(sql).bind(project).bind(DEFAULT_PROJECT)).await? > 0 {
            return Ok(());
        }
        self.project_name(project).await?;
        let why = if project == DEFAULT_PROJECT {
            "The default project stays: runs without a choice go there."
        } else {
            "The project holds runs. Move or delete them first."
        };
        Err(Problem::invalid(why))
    }

    /// The members of a project by name.
    pub async fn members(&self, project: &str) -> Result<Vec<Member>, StoreError> {
        let rows = sqlx::query(
            "SELECT u.id, u.name, m.role FROM memberships m JOIN users u ON u.id = m.user_id WHERE m.project_id = $1 \
             ORDER BY u.name",
        )
        .bind(project)
        .fetch_all(&self.pool)
        .await?;
        let member = |row: &DbRow| {
            Ok(Member { user: row.try_get("id")?, name: row.try_get("name")?, role: role(row.try_get("role")?)? })
        };
        rows.iter().map(member).collect()
    }

    /// Makes a user a member, changes what the member is, or (without a role) ends the membership.
    pub async fn set_member(&self, project: &str, name: &UserName, role: Option<Role>) -> Result<User> {
        self.project_name(project).await?;
        let user = self.named_user(name).await?;
        let changed = match role {
            Some(role) => {
                sqlx::query(
                    "INSERT INTO memberships (project_id, user_id, role, created_at) VALUES ($1, $2, $3, $4) \
                     ON CONFLICT (project_id, user_id) DO UPDATE SET role = excluded.role",
                )
                .bind(project)
                .bind(&user.id)
                .bind(role.slug())
                .bind(now().0)
                .execute(&self.pool)
                .await
            }
            None => {
                sqlx::query("DELETE FROM memberships WHERE project_id = $1 AND user_id = $2")
                    .bind(project)
                    .bind(&user.id)
                    .execute(&self.pool)
                    .await
            }
        };
        changed.map_err(StoreError::from)?;
        Ok(user)
    }

    /// The projects of a user by name; for an administrator all of them.
    pub async fn memberships(&self, user: &User) -> Result<Vec<Membership>, StoreError> {
        if user.is_admin {
            let of = |project: Project| Membership { project: project.id, name: project.name, role: Role::Admin };
            return Ok(self.projects().await?.into_iter().map(of).collect());
        }
        let rows = sqlx::query(
            "SELECT p.id, p.name, m.role FROM memberships m JOIN projects p ON p.id = m.project_id \
             WHERE m.user_id = $1 ORDER BY p.name, p.id",
        )
        .bind(&user.id)
        .fetch_all(&self.pool)
        .await?;
        let membership = |row: &DbRow| {
            Ok(Membership {
                project: row.try_get("id")?,
                name: row.try_get("name")?,
                role: role(row.try_get("role")?)?,
            })
        };
        rows.iter().map(membership).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::users::tests::accounts;

    #[tokio::test]
    async fn members_come_change_and_go() {
        let (_folder, accounts) = accounts().await;
        let admin = accounts.add_user(&"ada".parse().unwrap(), true).await.unwrap();
        let bo: UserName = "bo".parse().unwrap();
        let user = accounts.add_user(&bo, false).await.unwrap();
        let project = accounts.add_project("Llama <b>").await.unwrap();
        assert!(accounts.add_project("Llama <b>").await.is_err());
        assert!(accounts.add_project(" \u{200b} ").await.is_err());
        let roles = async || {
            let found = accounts.memberships(&user).await.unwrap();
            found.into_iter().map(|membership| (membership.project, membership.role)).collect::<Vec<_>>()
        };
        assert_eq!(roles().await, []);
        accounts.set_member(&project.id, &bo, Some(Role::Viewer)).await.unwrap();
        accounts.set_member(&project.id, &bo, Some(Role::Editor)).await.unwrap();
        assert_eq!(roles().await, [(project.id.clone(), Role::Editor)]);
        assert_eq!(accounts.members(&project.id).await.unwrap()[0].name, "bo");
        assert!(accounts.set_member(&project.id, &"cy".parse().unwrap(), Some(Role::Viewer)).await.is_err());
        assert!(accounts.set_member("nowhere", &bo, Some(Role::Viewer)).await.is_err());
        accounts.set_member(&project.id, &bo, None).await.unwrap();
        assert_eq!(roles().await, []);
        let all = accounts.memberships(&admin).await.unwrap();
        assert!(all.len() == 2 && all.iter().all(|membership| membership.role == Role::Admin));
    }

    #[tokio::test]
    async fn projects_with_runs_and_the_default_one_stay() {
        let (_folder, accounts) = accounts().await;
        let (a, b) = (accounts.add_project("a").await.unwrap(), accounts.add_project("b").await.unwrap());
        assert!(accounts.rename_project(&a.id, "b").await.is_err());
        accounts.rename_project(&a.id, "c").await.unwrap();
        assert!(accounts.rename_project("nowhere", "d").await.is_err());
        sqlx::query("INSERT INTO runs (id, title, created_at, version, project_id) VALUES ('r', 't', 1, 1, $1)")
            .bind(&a.id)
            .execute(&accounts.pool)
            .await
            .unwrap();
        assert!(accounts.remove_project(&a.id).await.unwrap_err().detail().contains("holds runs"));
        assert!(accounts.remove_project(DEFAULT_PROJECT).await.unwrap_err().detail().contains("stays"));
        accounts.remove_project(&b.id).await.unwrap();
        let names: Vec<_> = accounts.projects().await.unwrap().into_iter().map(|p| (p.name, p.runs)).collect();
        assert_eq!(names, [("Default".to_owned(), 0), ("c".to_owned(), 1)]);
    }
}
