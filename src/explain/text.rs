//! The explanation for a terminal, at most 100 columns wide as long as names are short.

mod live;
mod order;

use std::fmt::{self, Write};

use super::budgets::span;
use super::moves::{Follows, Move};
use super::places::{Candidate, Excluded, Tried};
use super::rounds::{Possible, SecondRound};
use super::{Asked, Budgets, Explanation, WorstCase};
use crate::core::decision::Stop;
use crate::policy::ordering::Exclusion;
use crate::policy::provider::Ownership;
use crate::policy::route::ModelPattern;

/// The explanation as text.
pub fn to_text(explanation: &Explanation) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = write_all(&mut out, explanation);
    out
}

fn write_all(out: &mut String, explanation: &Explanation) -> fmt::Result {
    head(out, explanation)?;
    order::policy(out, &explanation.policy)?;
    writeln!(out, "\nCandidates, in order")?;
    if explanation.candidates.is_empty() {
        let by_format = |entry: &Excluded| entry.reason == Exclusion::ApiFormat;
        let why = match explanation.excluded.iter().all(by_format) {
            true => format!("no target speaks {}", explanation.asked.api),
            false => "no target can serve it".to_owned(),
        };
        writeln!(
            out,
            "  none: {why}, so the gateway answers 503 without a send"
        )?;
    }
    for (index, entry) in explanation.candidates.iter().enumerate() {
        candidate(out, index + 1, entry)?;
        if let Some(state) = &entry.now {
            live::now(out, state)?;
        }
    }
    order::ranks(out, &explanation.ranks)?;
    if !explanation.excluded.is_empty() {
        writeln!(out, "\nNot candidates")?;
    }
    for entry in &explanation.excluded {
        excluded(out, entry)?;
    }
    budgets(out, &explanation.budgets)?;
    moves(out, &explanation.moves)?;
    writeln!(out, "\nWhat ends it")?;
    for end in &explanation.ends {
        writeln!(out, "  - {end}")?;
    }
    second_round(out, &explanation.second_round)?;
    worst_case(out, &explanation.worst_case)?;
    match &explanation.live {
        Some(state) => live::at_the_moment(out, state),
        None => live::not_known(out, explanation),
    }
}

fn head(out: &mut String, explanation: &Explanation) -> fmt::Result {
    let asked = &explanation.asked;
    let how = match &explanation.pattern {
        ModelPattern::Exact(_) => "by its exact name".to_owned(),
        ModelPattern::Prefix(_) => format!("by the prefix {}", explanation.pattern.text()),
    };
    writeln!(out, "Model     {}", asked.model)?;
    writeln!(out, "Route     {} ({how})", explanation.route)?;
    writeln!(out, "Format    {} ({})", asked.api, asked.because.phrase())?;
    request(out, asked)
}

fn request(out: &mut String, asked: &Asked) -> fmt::Result {
    let answer = if asked.stream {
        "a stream"
    } else {
        "one answer"
    };
    let body = match asked.body_bytes {
        Some(bytes) => format!("a body of {bytes} bytes"),
        None => "no body given".to_owned(),
    };
    writeln!(out, "Request   {answer}; {body}")?;
    let bound = match asked.binding {
        Some(binding) => format!("to provider state: {binding}; it never changes target"),
        None => "to nothing".to_owned(),
    };
    writeln!(out, "Bound     {bound}")?;
    if asked.side_effects {
        writeln!(
            out,
            "Tools     run at the provider: no rejection is certified"
        )?;
    }
    if asked.caller_retry {
        writeln!(out, "Client    says that this is its own retry")?;
    }
    if let Some(model) = &asked.body_model {
        writeln!(
            out,
            "Note      the body names {model:?}; a gateway would route by that name"
        )?;
    }
    Ok(())
}

fn candidate(out: &mut String, place: usize, entry: &Candidate) -> fmt::Result {
    let clients = if entry.model_is_clients {
        ", the client's"
    } else {
        ""
    };
    writeln!(
        out,
        "  {place}. {} = {} (adapter {}), model {}{clients}",
        entry.target, entry.provider, entry.adapter, entry.model
    )?;
    writeln!(out, "     place     {}", entry.reason)?;
    match &entry.base {
        Some(base) => writeln!(out, "     sends     POST {base}{}", entry.path)?,
        None => writeln!(
            out,
            "     sends     POST {} (scripted provider)",
            entry.path
        )?,
    }
    match (entry.keys.as_slice(), &entry.identity) {
        ([], Some(identity)) => writeln!(out, "     key       {identity}")?,
        ([], None) => writeln!(out, "     key       none: no credential is sent")?,
        ([key], _) => writeln!(out, "     key       {key}")?,
        (keys, _) => {
            let keys = keys.join(", ");
            writeln!(
                out,
                "     keys      {keys}: the next one when one is throttled or refused"
            )?;
            for place in &entry.key_places {
                writeln!(out, "               {}: {}", place.key, place.reason)?;
            }
        }
    }
    for (key, why) in &entry.keys_left_out {
        writeln!(out, "     left out  {key}: {}", why.sentence())?;
    }
    let owner = match (entry.ownership, &entry.retry) {
        (Ownership::External, _) => "the caller's".to_owned(),
        (Ownership::Internal, None) => "the gateway's; none configured".to_owned(),
        (Ownership::Internal, Some(retry)) => format!(
            "the gateway's: {} tries within {}",
            retry.attempts_max,
            span(retry.elapsed_max)
        ),
    };
    let tries = if entry.is_tried == Tried::Never {
        0
    } else {
        entry.tries
    };
    writeln!(
        out,
        "     tries     at most {tries} in round 1; further retries are {owner}"
    )?;
    let statuses: Vec<String> = entry.certified.iter().map(u16::to_string).collect();
    let proof = match statuses.as_slice() {
        [] => "no answer proves that the request did not run".to_owned(),
        statuses => format!(
            "{} with its own codes: the request did not run",
            statuses.join(", ")
        ),
    };
    writeln!(out, "     proof     {proof}")?;
    let limits = &entry.timeouts;
    writeln!(
        out,
        "     timeouts  connect {}, first byte {}, silence {}, whole answer {}",
        span(limits.connect),
        span(limits.first_byte),
        span(limits.idle),
        span(limits.total)
    )
}

fn excluded(out: &mut String, entry: &Excluded) -> fmt::Result {
    writeln!(
        out,
        "  -  {} = {}: {}",
        entry.target,
        entry.provider,
        entry.reason.sentence()
    )?;
    if let Some(rule) = &entry.rule {
        writeln!(out, "     rule      {rule}")?;
    }
    if entry.reason == Exclusion::ApiFormat {
        // Three of the longest labels fill a line.
        for (index, labels) in entry.speaks.chunks(3).enumerate() {
            let says = if index == 0 { "it speaks" } else { "         " };
            writeln!(out, "     {says} {}", labels.join(", "))?;
        }
    }
    Ok(())
}

fn budgets(out: &mut String, budgets: &Budgets) -> fmt::Result {
    writeln!(out, "\nBudgets")?;
    let mut row = |name: &str, value: String| writeln!(out, "  {name:<39}{value}");
    row("targets tried in a round", budgets.attempts_max.to_string())?;
    let why = match budgets.tries_max {
        Some(tries) => format!(
            "  (max_upstream_sends {}, max_retries {})",
            budgets.sends_max,
            tries.saturating_sub(1)
        ),
        None => format!(
            "  (max_upstream_sends {}, no max_retries)",
            budgets.sends_max
        ),
    };
    row(
        "sends over all rounds",
        format!("{}{why}", budgets.sends_allowed),
    )?;
    row(
        "tries of the first on its key",
        budgets.sticky_tries.to_string(),
    )?;
    let deadline = match budgets.deadline < budgets.route_deadline {
        true => format!(
            "  (the client's; the route allows {})",
            span(budgets.route_deadline)
        ),
        false => String::new(),
    };
    row("deadline", format!("{}{deadline}", span(budgets.deadline)))?;
    if let Some(within) = budgets.fail_within {
        row("a failure later than this is final", span(within))?;
    }
    if let Some(within) = budgets.failover_within {
        row("no try but the first starts later than", span(within))?;
    }
    let (percent, floor) = budgets.retry_terms;
    let text = format!("{percent} in 100 operations, and {floor} a second");
    row("extra sends of the route", text)?;
    if let Some(wait) = budgets.wait_max {
        row("longest wait for round 2", span(wait))?;
    }
    Ok(())
}

fn moves(out: &mut String, moves: &[Move]) -> fmt::Result {
    writeln!(
        out,
        "
{:<51}{:<25}then, and at others",
        "After a failure", "at the first target"
    )?;
    for entry in moves {
        let (first, then) = (follows(entry.first), follows(entry.then));
        writeln!(out, "  {:<49}{first:<25}{then}", entry.phrase())?;
    }
    Ok(())
}

/// A phrase for what follows.
pub(super) const fn follows(follows: Follows) -> &'static str {
    match follows {
        Follows::SameTarget => "once more, same key",
        Follows::NextTarget => "next target",
        Follows::RoundOver => "the round is over",
        Follows::Stop(Stop::Ambiguous) => "stop: it may have run",
        Follows::Stop(Stop::OutputSeen) => "stop: output was seen",
        Follows::Stop(_) => "stop: passed on as it is",
    }
}

fn second_round(out: &mut String, second: &SecondRound) -> fmt::Result {
    let verdict = match second.possible {
        Possible::Yes => "possible",
        Possible::OnlyWhenCooling => "only if targets were passed over because they cooled",
        Possible::No => "no",
    };
    writeln!(out, "\nSecond round: {verdict}")?;
    for objection in &second.objections {
        writeln!(out, "  {}: {}", objection.reason, objection.why)?;
    }
    if !second.needs.is_empty() {
        writeln!(out, "  It needs:")?;
    }
    for need in &second.needs {
        writeln!(out, "  - {need}")?;
    }
    Ok(())
}

fn worst_case(out: &mut String, worst: &WorstCase) -> fmt::Result {
    let plural = |number: u64| if number == 1 { "" } else { "s" };
    writeln!(out, "\nWorst case")?;
    writeln!(
        out,
        "  {} send{} in {} round{}",
        worst.sends,
        plural(worst.sends.into()),
        worst.rounds,
        plural(worst.rounds.into())
    )?;
    writeln!(
        out,
        "  an answer begins within {}, the deadline",
        span(worst.until_answer)
    )?;
    if worst.by_timeouts < worst.until_answer {
        let span = span(worst.by_timeouts);
        writeln!(
            out,
            "  by its timeouts alone within {span}, uploads not counted"
        )?;
    }
    writeln!(
        out,
        "  its last byte is sent within {}",
        span(worst.until_end)
    )
}
