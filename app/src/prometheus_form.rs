//! The form that brings GPU memory in from a Prometheus-compatible server. A plain form: it needs no JavaScript. Shown
//! only where the operator allowed a server.

use crate::accounts::{ProjectChoice, may_edit};
use crate::words;
use leptos::prelude::*;

/// The form, closed; nothing where no server may be asked, or the visitor may add no run.
pub fn prometheus_form(servers: &[String], projects: &[ProjectChoice]) -> Option<AnyView> {
    if servers.is_empty() || !may_edit() {
        return None;
    }
    let server = if let [only] = servers {
        view! {
            <div class="field">
                <label for="prom-server">"Server"</label>
                <input id="prom-server" type="text" name="server" value=only.clone() readonly/>
            </div>
        }
        .into_any()
    } else {
        let option = |address: &String| view! { <option value=address.clone()>{address.clone()}</option> };
        view! {
            <div class="field">
                <label for="prom-server">"Server"</label>
                <select id="prom-server" name="server">{servers.iter().map(option).collect_view()}</select>
            </div>
        }
        .into_any()
    };
    let project = (projects.len() > 1).then(|| {
        let option = |project: &ProjectChoice| {
            view! { <option value=project.id.clone()>{words::shown_line(&project.name)}</option> }
        };
        view! {
            <div class="field">
                <label for="prom-project">"Project"</label>
                <select id="prom-project" name="project">{projects.iter().map(option).collect_view()}</select>
            </div>
        }
    });
    let field = |id: &'static str, name: &'static str, label: &'static str, placeholder: &'static str| {
        view! {
            <div class="field">
                <label for=id>{label}</label>
                <input id=id type="text" name=name placeholder=placeholder maxlength="1024" autocomplete="off" spellcheck="false"/>
            </div>
        }
    };
    let view = view! {
        <details class="from-prometheus">
            <summary><strong>"From Prometheus"</strong>" "<span class="dim">"the GPU memory that dcgm-exporter collected"</span></summary>
            <form class="fields" method="post" action="/runs/from-prometheus" aria-label="From Prometheus">
                {server}
                {field("prom-selector", "selector", "Selector", "Hostname=~\"node-.*\", exported_pod=~\"train-.*\"")}
                <div class="pair-fields">
                    {field("prom-from", "from", "From", "now-1h")}
                    {field("prom-to", "to", "To", "now")}
                    {field("prom-step", "step", "Step in seconds", "10 or more")}
                </div>
                {project}
                <p class="limits">
                    "Times are UTC: 2026-11-30 14:00, now-2h, or seconds since 1970. Without a selector all GPUs are taken. "
                    "Exporters take a value every half minute or so: a peak between two is not in them."
                </p>
                <button type="submit" class="button">"Read and find the cause"</button>
            </form>
        </details>
    };
    Some(view.into_any())
}
