//! The files of `deploy/`: read as the tools read them for which they are, their options taken by the program, and what
//! stands in several of them the same in all.

use clap::Parser;
use rankscope::{
    cli::{Cli, Command, ServeArgs},
    configuration::{self, Origin, Setting},
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};
use yaml_rust2::{Yaml, YamlLoader};

const PROGRAM: &str = "/usr/local/bin/rankscope";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What the program makes of words that a file gives it.
fn command(from: &str, words: &[String]) -> Command {
    let words = std::iter::once("rankscope").chain(words.iter().map(String::as_str));
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{from}: {error}")).command
}

fn serve(from: &str, words: &[String]) -> ServeArgs {
    match command(from, words) {
        Command::Serve(args) => args,
        other => panic!("{from}: {other:?}"),
    }
}

/// The settings of a configuration file.
fn settings(text: &str) -> Vec<Setting> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rankscope.toml");
    fs::write(&path, text).unwrap();
    let words = ["rankscope".into(), "config".into(), "check".into(), OsString::from(&path)];
    configuration::read(&words).unwrap_or_else(|failure| panic!("{failure:?}")).settings
}

fn setting<'a>(settings: &'a [Setting], key: &str) -> &'a str {
    let found = settings.iter().find(|setting| setting.key == key).unwrap();
    assert!(matches!(found.origin, Origin::File(_)), "{key} does not stand in the file");
    found.value.as_deref().unwrap()
}

/// A unit's settings in order, each with its section.
struct Unit(Vec<(String, String, String)>);

impl Unit {
    fn read(path: &str) -> Self {
        let mut section = String::new();
        let mut lines = Vec::new();
        for line in file(path).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                assert!(["Unit", "Service", "Install"].contains(&name), "{path}: {line}");
                name.clone_into(&mut section);
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{path}: {line}"));
            assert!(!section.is_empty() && key.chars().all(char::is_alphanumeric), "{path}: {line}");
            lines.push((section.clone(), key.to_owned(), value.to_owned()));
        }
        Self(lines)
    }

    fn all(&self, wanted: &str) -> Vec<&str> {
        self.0.iter().filter(|(_, key, _)| key == wanted).map(|(_, _, value)| value.as_str()).collect()
    }

    fn one(&self, wanted: &str) -> &str {
        let found = self.all(wanted);
        assert_eq!(found.len(), 1, "{wanted}: {found:?}");
        found[0]
    }

    /// The words that the program gets, with the folders that systemd puts into them.
    fn words(&self, key: &str) -> Vec<String> {
        let mut words = self.one(key).split(' ').map(|word| {
            word.replace("${CREDENTIALS_DIRECTORY}", "/run/credentials/x").replace("${STATE_DIRECTORY}", "/var/lib/x")
        });
        assert_eq!(words.next().as_deref(), Some(PROGRAM));
        let words: Vec<String> = words.collect();
        assert!(words.iter().all(|word| !word.contains('$')), "{words:?}");
        words
    }

    /// Names of the credentials, which must be those that the program reads.
    fn credentials(&self) -> BTreeSet<&str> {
        self.all("LoadCredential").into_iter().map(|credential| credential.split_once(':').unwrap().0).collect()
    }
}

fn read_from_credentials(words: &[String]) -> BTreeSet<&str> {
    words.iter().filter_map(|word| word.strip_prefix("/run/credentials/x/")).collect()
}

#[test]
fn units_start_the_program_as_it_is() {
    let unit = Unit::read("deploy/systemd/rankscope.service");
    let words = unit.words("ExecStart");
    let args = serve("rankscope.service", &words);
    assert_eq!(read_from_credentials(&words), unit.credentials());
    assert!(args.config.is_some() && args.agent_token_file.is_some());
    // What is tried before the start is what is started.
    let check = unit.words("ExecStartPre");
    assert_eq!(check[..2], ["config", "check"]);
    assert_eq!(check[2..], words[1..]);
    assert!(matches!(command("rankscope.service", &check), Command::Config { .. }));

    let settings = settings(&file("deploy/rankscope.toml"));
    assert_eq!(setting(&settings, "data"), format!("/var/lib/{}", unit.one("StateDirectory")));
    // Without devices there is no GPU to sample.
    assert_eq!((unit.one("PrivateDevices"), setting(&settings, "no-sampler")), ("yes", "true"));
    assert_eq!(unit.one("WantedBy"), "multi-user.target");

    let unit = Unit::read("deploy/systemd/rankscope-agent.service");
    let words = unit.words("ExecStart");
    let Command::Agent(args) = command("rankscope-agent.service", &words) else { panic!("{words:?}") };
    assert_eq!(read_from_credentials(&words), unit.credentials());
    assert_eq!((args.spool.as_path(), unit.all("StateDirectory").len()), (Path::new("/var/lib/x"), 1));
    assert_eq!(args.server.to_string(), setting(&settings, "public-url"));
    assert_eq!(unit.one("CapabilityBoundingSet"), unit.one("AmbientCapabilities"));
    for hides in ["PrivateDevices", "ProtectProc", "PrivateUsers"] {
        assert_eq!(unit.all(hides), [""; 0], "it must see cards and processes");
    }
}

/// A value below others; `Yaml::BadValue` where there is none.
fn at<'a>(yaml: &'a Yaml, path: &[&str]) -> &'a Yaml {
    path.iter().fold(yaml, |yaml, key| &yaml[*key])
}

fn text<'a>(yaml: &'a Yaml, path: &[&str]) -> &'a str {
    at(yaml, path).as_str().unwrap_or_else(|| panic!("{path:?} in {yaml:?}"))
}

fn texts(yaml: &Yaml) -> Vec<String> {
    yaml.as_vec().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn list<'a>(yaml: &'a Yaml, path: &[&str]) -> &'a Vec<Yaml> {
    at(yaml, path).as_vec().unwrap_or_else(|| panic!("{path:?} in {yaml:?}"))
}

struct Manifests(Vec<Yaml>);

impl Manifests {
    fn read(path: &str) -> Self {
        Self(YamlLoader::load_from_str(&file(path)).unwrap_or_else(|error| panic!("{path}: {error}")))
    }

    fn of_kind(&self, kind: &str) -> &Yaml {
        let found: Vec<&Yaml> = self.0.iter().filter(|found| found["kind"].as_str() == Some(kind)).collect();
        assert_eq!(found.len(), 1, "{kind}");
        assert!(found[0]["apiVersion"].as_str().is_some() && at(found[0], &["metadata", "name"]).as_str().is_some());
        found[0]
    }
}

/// Template and only container of a workload, whose labels its selector finds.
fn pod(workload: &Yaml) -> (&Yaml, &Yaml) {
    let labels = at(workload, &["spec", "template", "metadata", "labels"]);
    assert_eq!(at(workload, &["spec", "selector", "matchLabels"]), labels);
    let pod = at(workload, &["spec", "template", "spec"]);
    let containers = list(pod, &["containers"]);
    assert_eq!(containers.len(), 1);
    (pod, &containers[0])
}

/// Where each volume of a container is mounted; all that are mounted are there.
fn mounts(workload: &Yaml) -> Vec<(String, String)> {
    let (pod, container) = pod(workload);
    let claims = at(workload, &["spec", "volumeClaimTemplates"]).as_vec().into_iter().flatten();
    let there: BTreeSet<&str> = list(pod, &["volumes"])
        .iter()
        .map(|volume| text(volume, &["name"]))
        .chain(claims.map(|claim| text(claim, &["metadata", "name"])))
        .collect();
    let mounts: Vec<(String, String)> = list(container, &["volumeMounts"])
        .iter()
        .map(|mount| (text(mount, &["name"]).to_owned(), text(mount, &["mountPath"]).to_owned()))
        .collect();
    assert_eq!(mounts.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>(), there);
    mounts
}

fn place<'a>(mounts: &'a [(String, String)], name: &str) -> &'a Path {
    Path::new(&mounts.iter().find(|(mounted, _)| mounted == name).unwrap().1)
}

#[test]
fn manifests_fit_the_program_and_each_other() {
    let server = Manifests::read("deploy/kubernetes/server.yaml");
    let set = server.of_kind("StatefulSet");
    let (pod_spec, container) = pod(set);
    let mounts_of_server = mounts(set);

    // The configuration file lies where the program is told to look, and names what is mounted.
    let args = serve("server.yaml", &texts(&container["args"]));
    let map = server.of_kind("ConfigMap");
    let name = args.config.as_deref().and_then(Path::file_name).unwrap().to_str().unwrap();
    assert_eq!(args.config.as_deref(), Some(&*place(&mounts_of_server, "settings").join(name)));
    let settings = settings(text(map, &["data", name]));
    assert_eq!(Path::new(setting(&settings, "data")), place(&mounts_of_server, "data"));
    assert_eq!(Path::new(setting(&settings, "agent-token-file")), place(&mounts_of_server, "token").join("token"));

    // One port under one name, from the setting to the service and the probes.
    let port = setting(&settings, "listen").rsplit(':').next().unwrap();
    let ports = list(container, &["ports"]);
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0]["containerPort"].as_i64().unwrap().to_string(), port);
    let port_name = text(&ports[0], &["name"]);
    let service = server.of_kind("Service");
    assert_eq!(text(&list(service, &["spec", "ports"])[0], &["targetPort"]), port_name);
    assert_eq!(at(service, &["spec", "selector"]), at(set, &["spec", "selector", "matchLabels"]));
    assert_eq!(text(set, &["spec", "serviceName"]), text(service, &["metadata", "name"]));
    for (probe, path) in [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let asked = at(container, &[probe, "httpGet"]);
        assert_eq!((text(asked, &["path"]), text(asked, &["port"])), (path, port_name), "{probe}");
    }

    // One server, and one that may do little.
    assert_eq!(at(set, &["spec", "replicas"]).as_i64(), Some(1));
    let user = at(pod_spec, &["securityContext", "runAsUser"]).as_i64();
    assert_eq!(at(pod_spec, &["securityContext", "runAsNonRoot"]).as_bool(), Some(true));
    assert_eq!(at(pod_spec, &["securityContext", "fsGroup"]).as_i64(), user);
    assert_eq!(at(container, &["securityContext", "readOnlyRootFilesystem"]).as_bool(), Some(true));
    assert_eq!(texts(at(container, &["securityContext", "capabilities", "drop"])), ["ALL"]);
    // Secrets are named, never given.
    let database = &list(container, &["env"])[0];
    assert_eq!(text(database, &["name"]), "RANKSCOPE_DATABASE_URL");
    assert!(at(database, &["valueFrom", "secretKeyRef", "name"]).as_str().is_some() && database["value"].is_badvalue());
    assert!(server.0.iter().all(|found| found["kind"].as_str() != Some("Secret")));

    let agents = Manifests::read("deploy/kubernetes/agent.yaml");
    let set = agents.of_kind("DaemonSet");
    let (pod_spec, container) = pod(set);
    let mounts_of_agent = mounts(set);
    let words = texts(&container["args"]);
    let Command::Agent(args) = command("agent.yaml", &words) else { panic!("{words:?}") };
    assert_eq!(args.server.to_string(), setting(&settings, "public-url"));
    assert_eq!(args.token_file.as_deref(), Some(&*place(&mounts_of_agent, "token").join("token")));
    assert_eq!(args.spool, place(&mounts_of_agent, "spool"));
    let names: Vec<&str> = list(container, &["env"]).iter().map(|variable| text(variable, &["name"])).collect();
    assert!(names.contains(&"NODE") && args.node.as_deref() == Some("$(NODE)"), "{names:?}");
    assert_eq!(text(pod_spec, &["runtimeClassName"]), "nvidia");
    assert_eq!(at(pod_spec, &["hostPID"]).as_bool(), Some(true));
    // Without root the capabilities would count for nothing.
    assert_eq!(at(container, &["securityContext", "runAsUser"]).as_i64(), Some(0));
    let secret = |mounts: &Yaml| {
        let of_token = list(mounts, &["volumes"]).iter().find(|volume| text(volume, &["name"]) == "token").unwrap();
        text(of_token, &["secret", "secretName"]).to_owned()
    };
    assert_eq!(secret(pod_spec), secret(pod(server.of_kind("StatefulSet")).0));
}

#[test]
fn two_servers_have_all_that_one_has_and_no_volume_that_only_one_can_have() {
    let (one, two) =
        (Manifests::read("deploy/kubernetes/server.yaml"), Manifests::read("deploy/kubernetes/replicas.yaml"));
    let (set, deployment) = (one.of_kind("StatefulSet"), two.of_kind("Deployment"));
    assert_eq!(at(deployment, &["spec", "replicas"]).as_i64(), Some(2));
    assert!(at(deployment, &["spec", "volumeClaimTemplates"]).is_badvalue());
    assert_eq!(mounts(set), mounts(deployment));
    let ((pod_of_one, container_of_one), (pod_of_two, container_of_two)) = (pod(set), pod(deployment));
    for key in ["args", "ports", "securityContext", "resources", "startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container_of_one[key], container_of_two[key], "{key}");
    }
    assert_eq!(pod_of_one["securityContext"], pod_of_two["securityContext"]);
    assert_eq!(one.of_kind("Service"), two.of_kind("Service"));
    let (labels, template) = (["spec", "selector", "matchLabels"], ["spec", "template", "metadata", "labels"]);
    assert_eq!(at(two.of_kind("PodDisruptionBudget"), &labels), at(deployment, &template));

    // Both of what makes them one, and no secret that may be missing.
    let settings = settings(text(two.of_kind("ConfigMap"), &["data", "rankscope.toml"]));
    assert!(setting(&settings, "objects").starts_with("s3://"));
    let credentials = place(&mounts(deployment), "bucket").join("credentials");
    assert_eq!(Path::new(setting(&settings, "objects-credentials-file")), credentials);
    let database = &list(container_of_two, &["env"])[0];
    assert_eq!(text(database, &["name"]), "RANKSCOPE_DATABASE_URL");
    assert!(!file("deploy/kubernetes/replicas.yaml").contains("optional"));
}

#[test]
fn the_image_holds_the_program_where_all_look_for_it() {
    const KNOWN: [&str; 11] =
        ["FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "EXPOSE", "USER", "ENTRYPOINT", "CMD", "LABEL"];
    let text_of = file("deploy/Containerfile");
    let lines: Vec<(&str, &str)> = text_of
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}")))
        .collect();
    assert!(lines.iter().all(|(word, _)| KNOWN.contains(word)), "{lines:?}");
    let last = |wanted: &str| lines.iter().rev().find(|(word, _)| *word == wanted).unwrap().1;
    let json = |wanted: &str| serde_json::from_str::<Vec<String>>(last(wanted)).unwrap();
    assert_eq!(json("ENTRYPOINT"), [PROGRAM]);
    serve("Containerfile", &json("CMD"));
    assert!(last("COPY").ends_with(&format!("/target/release/rankscope {PROGRAM}")), "{}", last("COPY"));
    let version = lines[0].1.split("rust:").nth(1).unwrap().split('-').next().unwrap();
    assert!(file("Cargo.toml").contains(&format!("rust-version = \"{version}\"")), "{version}");

    // The same user, port and folder as in the manifests.
    let server = Manifests::read("deploy/kubernetes/server.yaml");
    let (pod_spec, container) = pod(server.of_kind("StatefulSet"));
    let context = |key: &str| at(pod_spec, &["securityContext", key]).as_i64().unwrap();
    assert_eq!(last("USER"), format!("{}:{}", context("runAsUser"), context("runAsGroup")));
    let port = list(container, &["ports"])[0]["containerPort"].as_i64().unwrap();
    assert_eq!(last("EXPOSE"), port.to_string());
    let variables: Vec<(&str, &str)> =
        last("ENV").split(' ').map(|variable| variable.split_once('=').unwrap()).collect();
    assert_eq!(variables, [("RANKSCOPE_LISTEN", &*format!("0.0.0.0:{port}")), ("RANKSCOPE_DATA", last("VOLUME"))]);
    assert_eq!(place(&mounts(server.of_kind("StatefulSet")), "data"), Path::new(last("VOLUME")));
    // They are names that the program reads.
    let cli = <Cli as clap::CommandFactory>::command();
    let known: Vec<_> =
        cli.find_subcommand("serve").unwrap().get_arguments().filter_map(|option| option.get_env()).collect();
    assert!(variables.iter().all(|(name, _)| known.contains(&name.as_ref())), "{variables:?}");
}

#[test]
fn the_documentation_shows_the_files_as_they_are() {
    for (page, path) in [
        ("install", "deploy/rankscope.toml"),
        ("install", "deploy/systemd/rankscope.service"),
        ("install", "deploy/Containerfile"),
        ("install", "deploy/kubernetes/server.yaml"),
        ("install", "deploy/kubernetes/replicas.yaml"),
        ("agent", "deploy/systemd/rankscope-agent.service"),
        ("agent", "deploy/kubernetes/agent.yaml"),
    ] {
        let text = file(&format!("docs/{page}.md"));
        assert!(text.contains(&format!("\n{}```\n", file(path))), "docs/{page}.md shows another {path}");
    }
}
