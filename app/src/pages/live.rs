//! `/live`: every node, its cards, and who is on them.

use super::message::{Sought, message};
use super::{backend, base_url, head};
use crate::accounts::may_edit;
use crate::backend::{BackendError, LiveNow, TurnedAway};
use crate::document::TopBar;
use crate::islands::LiveNodes;
use crate::live::{node_card, summary};
use crate::report::code_block;
use crate::{icons, words};
use leptos::prelude::*;
use leptos_meta::{Meta, Title};

/// Addresses that are named; of more their number says enough.
const TURNED_AWAY_SHOWN: usize = 5;

/// The nodes as they are now; an island keeps them moving.
#[component]
pub fn LivePage() -> impl IntoView {
    Suspend::new(async move {
        match load().await {
            Ok(now) => page(&now),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load() -> Result<LiveNow, BackendError> {
    backend()?.live().await
}

fn page(now: &LiveNow) -> AnyView {
    head(view! {
        <Title text="Live - Rankscope"/>
        <Meta name="description" content="Memory of every GPU of every node, now."/>
        <Meta name="robots" content="noindex"/>
    });
    let cards = now.nodes.iter().map(node_card).collect_view();
    let turned_away = turned_away(&now.turned_away);
    let (sum, cursor, empty, has_nodes) = (summary(&now.nodes), now.cursor.clone(), empty(now), !now.nodes.is_empty());
    view! {
        <TopBar/>
        <main id="main" class="live">
            <LiveNodes>
                <div class="live-head">
                    <h1>"Live"</h1>
                    <p class="live-sum" data-sum="">{sum}</p>
                    <label class="live-only"><input type="checkbox" autocomplete="off"/>"Only what stands out"</label>
                    <p class="live-link" role="status" data-link="">"As of now. "<a href="/live">"Refresh"</a></p>
                </div>
                {turned_away}
                <div class="nodes" class:editable=may_edit() data-nodes="" data-since=cursor>{cards}</div>
                <p class="live-none dim">"No node stands out."</p>
                <div class="live-empty" data-empty="" hidden=has_nodes>{empty}</div>
            </LiveNodes>
        </main>
    }
    .into_any()
}

/// A server that takes data from other machines. `docs/agent.md` says the same; a test holds them together.
const START: &str = "head -c 32 /dev/urandom | base64 > FILE && chmod 600 FILE\nrankscope serve --agent-token-file FILE --listen 0.0.0.0:3000";
/// What comes of it.
const FIRST_START: &str = "The first start on such an address prints a link for the first administrator: from then on people sign in, and agents show the token.";

/// Who tries to send and may not: a node that is missing is looked for here.
fn turned_away(list: &[TurnedAway]) -> Option<AnyView> {
    let time = |at| view! { <time datetime=words::time_iso(at)>{words::clock(at)}</time> };
    let lines = list.iter().take(TURNED_AWAY_SHOWN).map(|one| {
        let (first, last) = one.times;
        let (why, what) = if one.unknown_token {
            let what = view! { "Look at the file that its " <code>"--token-file"</code> " names." };
            ("it shows no token that this server knows.", what.into_any())
        } else {
            let what = view! { "Its token is for something else, or this server was started without " <code>"--agent-token-file"</code> "." };
            ("it may not send live data here.", what.into_any())
        };
        let when = if one.count == 1 {
            view! { "once, at "{time(last)} }.into_any()
        } else {
            let from = (words::clock(first) != words::clock(last)).then(|| view! { "from "{time(first)}" to " });
            let at = from.is_none().then_some("at ");
            view! { {format!("{} times, ", one.count)}{from}{at}{time(last)} }.into_any()
        };
        view! { <li>{icons::warning()}"A sender at "<b><bdi>{one.address.clone()}</bdi></b>" was turned away "{when}": "{why}" "<span class="dim">{what}</span></li> }
    });
    let lines = lines.collect_view();
    let more = list.len().saturating_sub(TURNED_AWAY_SHOWN);
    let more = (more > 0).then(|| view! { <li class="dim">{format!("And {}.", words::counted(more, "other address", "other addresses"))}</li> });
    (!list.is_empty()).then(|| {
        view! { <ul class="turned-away" aria-label="Senders that were turned away">{lines}{more}</ul> }.into_any()
    })
}

/// How to begin.
fn empty(now: &LiveNow) -> AnyView {
    let url = match base_url() {
        url if url.is_empty() => "http://127.0.0.1:3000".to_owned(),
        url => url,
    };
    let token = if now.needs_token {
        view! { <p>"FILE holds the token that this server was started with (" <code>"--agent-token-file"</code> ")."</p> }.into_any()
    } else {
        view! {
            <p>"This server has no token for agents yet, so it takes data from its own machine only. Start it with one, and give the same file to every node:"</p>
            {code_block(START)}
            <p>{FIRST_START}</p>
        }
        .into_any()
    };
    view! {
        <div class="empty">
            <p><strong>"No node has sent anything yet."</strong>" A server on a GPU machine shows its own GPUs without further ado. On every other node start an agent:"</p>
            {code_block(&format!("rankscope agent --server {url} --token-file FILE"))}
            {token}
            <p>"A job whose processes set " <code>"RANK"</code> " becomes a run by itself as soon as they hold GPU memory."</p>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_starts_a_server_for_agents_in_the_same_way() {
        let page = crate::docs::texts().find(|text| text.starts_with("# The agent")).unwrap();
        assert!(page.contains(START) && page.contains(FIRST_START));
        // What the page leaves out: the choice without accounts, and that agents need their token then too.
        assert!(page.contains("`--open-to-network`") && page.contains("Agents show the token all the same"));
    }
}
