//! `rankscope user`: accounts from the command line, also while a server holds the data folder. The way back in for who
//! is locked out.

use super::opening;
use crate::{
    accounts::{Accounts, Action, User, UserName, check_choice},
    cli::{UserArgs, UserCommand},
    errors::Problem,
    store::Store,
};
use anyhow::{Context, anyhow, bail};
use std::io::{BufRead, IsTerminal};

/// Longest line that is read as a password.
const MAX_LINE: u64 = 4096;

/// Does one thing to the accounts of a data folder.
pub fn run(args: &UserArgs) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(change(args))
}

async fn change(args: &UserArgs) -> anyhow::Result<()> {
    let data = &args.data;
    let url = args.database_url.as_ref();
    let database = Store::database_beside(data, url).await.with_context(|| opening(data, url))?;
    let accounts = Accounts::over(database.clone());
    let done = match &args.command {
        UserCommand::List => list(&accounts).await,
        UserCommand::Add { name, admin, password_stdin } => {
            // Somebody must be able to let the others in.
            let is_admin = *admin || !accounts.is_set_up().await?;
            let name = parsed(name)?;
            // Before the user is there, so that a mistake leaves nothing behind.
            let password = chosen(&name, *password_stdin)?;
            let user = accounts.add_user(&name, is_admin).await.map_err(words)?;
            println!("Added {}{}.", user.name, if is_admin { ", an administrator" } else { "" });
            accounts.record("the command line", Action::UserAdded, &user.name, None).await;
            give_password(args, &accounts, &user, password).await
        }
        UserCommand::Passwd { name, password_stdin } => {
            let name = parsed(name)?;
            let user = accounts.user_by_name(&name).await;
            let user = user.map_err(|error| anyhow!("{}: {error}", name.as_str()))?;
            let password = chosen(&name, *password_stdin)?;
            give_password(args, &accounts, &user, password).await
        }
    };
    database.pool().close().await;
    done
}

fn parsed(name: &str) -> anyhow::Result<UserName> {
    name.parse().map_err(words)
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn words(problem: Problem) -> anyhow::Error {
    anyhow!("{}", problem.detail())
}

async fn list(accounts: &Accounts) -> anyhow::Result<()> {
    for user in accounts.users().await? {
        let mut facts = vec![if user.is_admin { "administrator" } else { "user" }];
        if !user.has_password {
            facts.push("no password");
        }
        if user.disabled_at.is_some() {
            facts.push("disabled");
        }
        println!("{:<32} {}", user.name, facts.join(", "));
    }
    Ok(())
}

/// The password from standard input, if it is to come from there.
fn chosen(name: &UserName, from_stdin: bool) -> anyhow::Result<Option<String>> {
    if !from_stdin {
        return Ok(None);
    }
    let password = read_password()?;
    check_choice(name.as_str(), &password).map_err(words)?;
    Ok(Some(password))
}

/// Sets the password and ends sessions, or makes a link with which the user chooses one.
async fn give_password(
    args: &UserArgs,
    accounts: &Accounts,
    user: &User,
    password: Option<String>,
) -> anyhow::Result<()> {
    if let Some(password) = password {
        accounts.set_password(user, password).await.map_err(words)?;
        accounts.record("the command line", Action::PasswordSet, &user.name, None).await;
        println!("Set the password of {}. Sessions of this account have ended.", user.name);
        return Ok(());
    }
    let secret = accounts.new_set_up_link(Some(&user.id)).await?;
    accounts.record("the command line", Action::UserLinkMade, &user.name, None).await;
    let base = args.public_url.as_ref().map_or_else(|| "http://127.0.0.1:3000".to_owned(), ToString::to_string);
    println!("{} chooses a password here, once, within 3 days:", user.name);
    println!("  {base}/setup/{secret}");
    Ok(())
}

fn read_password() -> anyhow::Result<String> {
    let mut input = std::io::stdin().lock();
    if std::io::stdin().is_terminal() {
        eprintln!("Password, which the terminal shows (without --password-stdin you get a link instead):");
    }
    let mut line = String::new();
    std::io::Read::take(&mut input, MAX_LINE).read_line(&mut line).context("reading the password")?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        bail!("standard input holds no password");
    }
    Ok(password.to_owned())
}
