//! The document around every page, and which address shows which page. Knows no report.

use crate::accounts::Visitor;
use crate::backend::SiteFacts;
use crate::icons;
use crate::islands::CopyButtons;
use crate::pages::{
    AuditPage, ChecklistPage, ComparePage, DeletePage, DocsPage, HomePage, LivePage, LoginPage, NotFoundPage,
    ProjectsPage, RetentionPage, RunPage, SetUpPage, SettingsPage, SharedPage, SnapshotsPage, UsersPage,
};
use leptos::config::LeptosOptions;
use leptos::nonce::use_nonce;
use leptos::prelude::*;
use leptos_meta::{MetaTags, provide_meta_context};
use leptos_router::components::{FlatRoutes, Route, Router};
use leptos_router::{SsrMode, path};

/// The style sheet: served as `/style.css`, and written into exported reports.
pub const STYLE: &str = include_str!("../../style/style.css");

/// The whole HTML document. Without a bundle in the binary no script tag is written: every page works without.
pub fn shell(options: LeptosOptions) -> impl IntoView {
    let has_bundle = use_context::<SiteFacts>().is_some_and(|site| site.has_bundle);
    if let Some(context) = Owner::current_shared_context() {
        // Only islands are hydrated; nothing outside them may leave data for the browser.
        context.set_is_hydrating(false);
    }
    view! {
        <!DOCTYPE html>
        <html lang="en">
            <head>
                <meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1"/>
                <meta name="color-scheme" content="light dark"/>
                <meta name="theme-color" content="#fbfbfa" media="(prefers-color-scheme: light)"/>
                <meta name="theme-color" content="#14171b" media="(prefers-color-scheme: dark)"/>
                <link rel="icon" href="/favicon.svg" type="image/svg+xml"/>
                <link rel="stylesheet" href="/style.css"/>
                {has_bundle.then(|| scripts(options))}
                <MetaTags/>
            </head>
            <body>
                <App/>
            </body>
        </html>
    }
}

/// How the bundle's module is told where its code is.
const BY_ADDRESS: &str = "module_or_path: `${root}/${pkg_path}/${wasm_output_name}.wasm`";

/// The script that brings the islands to life. Leptos would preload the bundle's code and use it once the browser is
/// idle; where that takes a while, browsers complain of a preload that nobody used. So the script itself asks for the
/// code at once, and hands it over when it is needed.
fn scripts(options: LeptosOptions) -> impl IntoView {
    let pkg = format!("/{}/{}", options.site_pkg_dir, options.output_name);
    let written = view! { <HydrationScripts options islands=true/> }.to_html();
    let script = written
        .split_once("<script")
        .and_then(|(_, rest)| rest.split_once('>'))
        .and_then(|(_, rest)| rest.split_once("</script>"))
        .map_or("", |(script, _)| script);
    let script =
        format!("const code = fetch(\"{pkg}_bg.wasm\");{}", script.replace(BY_ADDRESS, "module_or_path: code"));
    view! {
        <link rel="modulepreload" href=format!("{pkg}.js") crossorigin="anonymous"/>
        <script type="module" nonce=use_nonce() inner_html=script></script>
    }
}

/// Every page. Each is rendered whole before the first byte is sent, so that status and head are right.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    view! {
        <a class="skip" href="#main">"Skip to content"</a>
        <Router>
            <FlatRoutes fallback=|| view! { <NotFoundPage/> }>
                <Route path=path!("/") view=HomePage ssr=SsrMode::Async/>
                <Route path=path!("/runs/:id") view=RunPage ssr=SsrMode::Async/>
                <Route path=path!("/runs/:id/checklist") view=ChecklistPage ssr=SsrMode::Async/>
                <Route path=path!("/runs/:id/checklist/:stage") view=ChecklistPage ssr=SsrMode::Async/>
                <Route path=path!("/live") view=LivePage ssr=SsrMode::Async/>
                <Route path=path!("/runs/:id/delete") view=DeletePage ssr=SsrMode::Async/>
                <Route path=path!("/runs/:id/snapshots") view=SnapshotsPage ssr=SsrMode::Async/>
                <Route path=path!("/compare") view=ComparePage ssr=SsrMode::Async/>
                <Route path=path!("/docs") view=DocsPage ssr=SsrMode::Async/>
                <Route path=path!("/docs/*page") view=DocsPage ssr=SsrMode::Async/>
                <Route path=path!("/r/:token") view=SharedPage ssr=SsrMode::Async/>
                <Route path=path!("/login") view=LoginPage ssr=SsrMode::Async/>
                <Route path=path!("/setup/:token") view=SetUpPage ssr=SsrMode::Async/>
                <Route path=path!("/settings") view=SettingsPage ssr=SsrMode::Async/>
                <Route path=path!("/settings/users") view=UsersPage ssr=SsrMode::Async/>
                <Route path=path!("/settings/projects") view=ProjectsPage ssr=SsrMode::Async/>
                <Route path=path!("/settings/projects/:project/retention") view=RetentionPage ssr=SsrMode::Async/>
                <Route path=path!("/settings/audit") view=AuditPage ssr=SsrMode::Async/>
            </FlatRoutes>
        </Router>
        <CopyButtons/>
    }
}

/// The bar at the top: the name, and what the page offers (`children`).
#[component]
pub fn TopBar(
    /// Links and buttons at the end of the bar.
    #[prop(optional)]
    children: Option<Children>,
    /// The list of runs is open to this visitor.
    #[prop(default = true)]
    runs: bool,
) -> impl IntoView {
    // Without accounts nobody has to sign in; with them, the runs are for who has.
    let visitor = use_context::<Visitor>();
    let runs = runs && visitor.as_ref().is_none_or(|visitor| visitor.name.is_some());
    let account = visitor.filter(|_| runs).and_then(account);
    view! {
        <header class="top">
            {if runs {
                view! { <a class="brand" href="/">{icons::brand()}"Rankscope"</a> }.into_any()
            } else {
                view! { <span class="brand">{icons::brand()}"Rankscope"</span> }.into_any()
            }}
            {runs.then(|| view! { <nav aria-label="Main"><a href="/#runs">"Runs"</a><a href="/live">"Live"</a><a href="/compare">"Compare"</a><a href="/docs">"Docs"</a></nav> })}
            <div class="top-end">{children.map(|children| children())}{account}</div>
        </header>
    }
}

/// Who has signed in, and the way out.
fn account(visitor: Visitor) -> Option<AnyView> {
    let name = visitor.name?;
    let out = visitor.may_sign_out.then(|| {
        view! {
            <form method="post" action="/logout">
                <button type="submit" class="button small">"Sign out"</button>
            </form>
        }
    });
    Some(view! { <span class="account"><a href="/settings">{name}</a>{out}</span> }.into_any())
}
