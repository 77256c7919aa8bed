//! Limits of a project as people write them, and what they mean as its page shows it.

use crate::{
    jobs::RETENTION,
    limits::parse_bytes,
    store::{Candidate, Expiring, Keep, MOST_DAYS, Reason, Spared, Store, StoreError},
};
use rankscope_app::{AskedLimits, Consequences, ExpiringRun, KeptFor, ProjectChoice, Retention};
use rankscope_model::UnixMicros;

/// What was written, as limits; or why it is none, for whoever wrote it.
pub fn read(asked: &AskedLimits) -> Result<Keep, String> {
    let days = match asked.days.trim() {
        "" => None,
        days => match days.parse() {
            Ok(days) if (1..=MOST_DAYS).contains(&days) => Some(days),
            _ => return Err(format!("{days:?} is not a whole number of days from 1 to {MOST_DAYS}.")),
        },
    };
    let bytes = match asked.size.trim() {
        "" => None,
        size => Some(parse_bytes(size).map_err(|why| format!("{why}."))?),
    };
    Ok(Keep { days, bytes })
}

/// The page of a project.
pub async fn of_project(
    store: &Store,
    project: ProjectChoice,
    asked: Option<AskedLimits>,
) -> Result<Retention, StoreError> {
    let kept = store.keep_of(&project.id).await?;
    let asked = asked.map(|asked| {
        let read = read(&asked);
        (asked, read)
    });
    let judged = asked.as_ref().and_then(|(_, read)| read.as_ref().ok().copied()).unwrap_or(kept);
    let consequences = consequences(store.expiring(&project.id, judged).await?);
    let next_look = store.job_due(RETENTION, &project.id).await?.map(UnixMicros);
    let asked = asked.map(|(asked, read)| (asked, read.map(shown)));
    Ok(Retention { project, kept: shown(kept), next_look, asked, consequences })
}

fn shown(keep: Keep) -> KeptFor {
    KeptFor { days: keep.days, bytes: keep.bytes }
}

fn consequences(expiring: Expiring) -> Consequences {
    let run = |candidate: Candidate, why| ExpiringRun {
        run: candidate.run,
        title: candidate.title,
        changed_at: candidate.changed_at,
        bytes: candidate.bytes,
        why,
    };
    Consequences {
        all: (expiring.runs, expiring.bytes),
        going: expiring
            .going
            .into_iter()
            .map(|(candidate, reason)| {
                let why = match reason {
                    Reason::Age => "not changed for longer",
                    Reason::Size => "too many bytes in the project",
                };
                run(candidate, why)
            })
            .collect(),
        spared: expiring
            .spared
            .into_iter()
            .map(|(candidate, spared)| {
                let why = match spared {
                    Spared::GoesOn => "its job goes on",
                    Spared::Shared => "a link to it works",
                };
                run(candidate, why)
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        let read = |days: &str, size: &str| read(&AskedLimits { days: days.into(), size: size.into() });
        assert_eq!(read("", " "), Ok(Keep::default()));
        assert_eq!(read(" 30 ", "20 GiB"), Ok(Keep { days: Some(30), bytes: Some(20 << 30) }));
        for (days, size) in [("0", ""), ("-1", ""), ("1.5", ""), ("36501", ""), ("<b>", ""), ("", "0"), ("", "20TB")] {
            assert!(read(days, size).is_err(), "{days} {size}");
        }
    }
}
