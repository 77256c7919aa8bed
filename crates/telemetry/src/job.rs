//! What all processes of one job have in common on all its nodes, out of their environments.
//!
//! Two jobs must never become one, so whatever is known is used: users give two jobs the same run id (tutorials say
//! `--rdzv-id=100`), but never the same rendezvous.

use std::fmt;

/// Longest text that is taken from an environment.
const LONGEST: usize = 128;

/// Launchers that are asked last, and their variables.
const LAUNCHERS: [(&str, &[&str]); 3] = [
    ("lsf", &["LSB_JOBID"]),
    ("pbs", &["PBS_JOBID"]),
    ("mpi", &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"]),
];

/// Names a job; [`Self::on_node`] writes it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobKey {
    /// A Slurm job, with the rendezvous port where the processes know one.
    Slurm {
        /// `SLURM_JOB_ID`.
        id: String,
        /// `MASTER_PORT`: one allocation can hold several jobs.
        port: Option<u16>,
    },
    /// The rendezvous of `torch.distributed`.
    Master {
        /// `MASTER_ADDR`.
        address: String,
        /// `MASTER_PORT`.
        port: u16,
    },
    /// `TORCHELASTIC_RUN_ID`, where no rendezvous is known.
    Elastic(String),
    /// Another launcher, and its name for the job.
    Launcher(&'static str, String),
}

impl JobKey {
    /// Out of the environment that `get` looks things up in.
    pub(crate) fn of(get: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |names: &[&str]| names.iter().find_map(|name| get(name).and_then(|text| usable(&text)));
        let port = text(&["MASTER_PORT"]).and_then(|port| port.parse().ok());
        if let Some(id) = text(&["SLURM_JOB_ID", "SLURM_JOBID"]) {
            return Some(Self::Slurm { id, port });
        }
        if let Some((address, port)) = text(&["MASTER_ADDR"]).zip(port) {
            return Some(Self::Master { address, port });
        }
        // `none` is torchrun's default, the same for every job.
        if let Some(id) = text(&["TORCHELASTIC_RUN_ID"]).filter(|id| id != "none") {
            return Some(Self::Elastic(id));
        }
        LAUNCHERS.iter().find_map(|(launcher, names)| Some(Self::Launcher(launcher, text(names)?)))
    }

    /// As [`rankscope_model::LiveRank::job`] has it. A rendezvous at the loopback address is written with the name of
    /// its node, because another node's has the same address.
    pub fn on_node(&self, node: &str) -> String {
        match self {
            Self::Master { address, port } if is_loopback(address) => format!("master:{node}:{port}"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slurm { id, port: None } => write!(f, "slurm:{id}"),
            Self::Slurm { id, port: Some(port) } => write!(f, "slurm:{id}:{port}"),
            Self::Master { address, port } => write!(f, "master:{address}:{port}"),
            Self::Elastic(id) => write!(f, "elastic:{id}"),
            Self::Launcher(launcher, id) => write!(f, "{launcher}:{id}"),
        }
    }
}

fn is_loopback(address: &str) -> bool {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

/// Foreign text: short, on one line, not empty.
fn usable(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(environment: &[(&str, &str)]) -> Option<String> {
        let get = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        JobKey::of(&get).map(|key| key.on_node("gpu7"))
    }

    #[test]
    fn the_launchers_are_known() {
        let master = [("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];
        assert_eq!(key(&master).as_deref(), Some("master:10.0.0.1:29500"));
        assert_eq!(key(&[("SLURM_JOB_ID", "4711")]).as_deref(), Some("slurm:4711"));
        assert_eq!(key(&[("SLURM_JOB_ID", "4711"), master[0], master[1]]).as_deref(), Some("slurm:4711:29500"));
        assert_eq!(key(&[("TORCHELASTIC_RUN_ID", "r1")]).as_deref(), Some("elastic:r1"));
        assert_eq!(key(&[("PMIX_NAMESPACE", "prterun-a-1@1")]).as_deref(), Some("mpi:prterun-a-1@1"));
        assert_eq!(key(&[("LSB_JOBID", "9")]).as_deref(), Some("lsf:9"));
    }

    #[test]
    fn a_run_id_that_others_may_have_too_is_not_enough() {
        let same_id = |port| [("TORCHELASTIC_RUN_ID", "100"), ("MASTER_ADDR", "a"), ("MASTER_PORT", port)];
        assert_ne!(key(&same_id("29500")), key(&same_id("29501")));
        assert_eq!(key(&[("TORCHELASTIC_RUN_ID", "none")]), None);
    }

    #[test]
    fn a_rendezvous_at_the_loopback_address_is_the_nodes_own() {
        for address in ["localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0"] {
            assert_eq!(key(&[("MASTER_ADDR", address), ("MASTER_PORT", "1")]).as_deref(), Some("master:gpu7:1"));
        }
    }

    #[test]
    fn odd_values_are_no_job() {
        assert_eq!(key(&[]), None);
        assert_eq!(key(&[("SLURM_JOB_ID", " "), ("PBS_JOBID", "a\nb")]), None);
        assert_eq!(key(&[("LSB_JOBID", &"9".repeat(129))]), None);
        assert_eq!(key(&[("MASTER_ADDR", "a"), ("MASTER_PORT", "70000")]), None);
    }
}
