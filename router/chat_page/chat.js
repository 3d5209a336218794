"use strict";
// One conversation with one model. Everything that comes from a model or a server is set as text,
// never as HTML; nothing is kept but the key, and that only until the tab is closed.

const $ = (id) => document.getElementById(id);
const page = {
  model: $("model"), about: $("about"), conversation: $("conversation"), form: $("ask"),
  question: $("question"), send: $("send"), stop: $("stop"), key: $("key"), system: $("system"),
  temperature: $("temperature"), maxTokens: $("max-tokens"), fresh: $("new"), settings: $("settings"),
};
const KEY = "llmgw.key";
const MODEL = "llmgw.model";
let models = [];
let turns = [];
let running = null;

// ---------------------------------------------------------------- the key

function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) {
    sessionStorage.setItem(KEY, given);
    // The address must not keep the key: it ends up in histories and screenshots.
    history.replaceState(null, "", location.pathname + location.search);
  }
  page.key.value = sessionStorage.getItem(KEY) || "";
}

function headers() {
  const key = page.key.value.trim();
  return key ? { authorization: `Bearer ${key}` } : {};
}

// ---------------------------------------------------------------- models

const isSimulated = (model) => model.owned_by === "llmgw-sim";
const isAdapter = (model) => Boolean(model.parent);

function order(a, b) {
  // A simulated model never leads the list; among the rest those that are loaded come first.
  const rank = (m) => [isSimulated(m) ? 1 : 0, state(m) === "loaded" ? 0 : 1, isAdapter(m) ? 1 : 0];
  const [x, y] = [rank(a), rank(b)];
  for (let i = 0; i < x.length; i += 1) if (x[i] !== y[i]) return x[i] - y[i];
  return a.id.localeCompare(b.id);
}

function state(model) {
  return model.status && model.status.value ? model.status.value : "loaded";
}

function option(model) {
  const made = document.createElement("option");
  made.value = model.id;
  const marks = [];
  if (isSimulated(model)) marks.push("simulated");
  if (state(model) !== "loaded") marks.push(state(model));
  made.textContent = marks.length ? `${model.id} (${marks.join(", ")})` : model.id;
  return made;
}

function preselected(list) {
  const before = sessionStorage.getItem(MODEL);
  const kept = list.find((model) => model.id === before);
  if (kept) return kept.id;
  const real = list.find((model) => !isSimulated(model) && state(model) === "loaded")
    || list.find((model) => !isSimulated(model));
  return real ? real.id : "";
}

async function loadModels() {
  let answer;
  try {
    answer = await fetch("/v1/models", { headers: headers() });
  } catch {
    return say("The router cannot be reached.", "wrong");
  }
  if (answer.status === 401) {
    page.settings.open = true;
    page.key.focus();
    return noModels("This router wants an API key: enter it under Settings.");
  }
  if (!answer.ok) return noModels((await failure(answer)).message);
  const found = (await answer.json()).data;
  models = found.sort(order);
  if (!models.length) return noModels("There is no model that this key may use.");
  const chosen = page.model.value && models.some((m) => m.id === page.model.value)
    ? page.model.value : preselected(models);
  page.model.replaceChildren();
  if (!chosen) {
    const nothing = document.createElement("option");
    nothing.value = "";
    nothing.textContent = "choose a model";
    page.model.append(nothing);
  }
  const groups = [["Models", models.filter((m) => !isSimulated(m))], ["Simulated", models.filter(isSimulated)]];
  for (const [label, members] of groups) {
    if (!members.length) continue;
    const group = document.createElement("optgroup");
    group.label = label;
    group.append(...members.map(option));
    page.model.append(group);
  }
  page.model.value = chosen;
  page.model.disabled = false;
  describe();
}

function noModels(words) {
  models = [];
  const nothing = document.createElement("option");
  nothing.value = "";
  nothing.textContent = "no model";
  page.model.replaceChildren(nothing);
  page.model.disabled = true;
  say(words);
}

function say(words, tone = "") {
  page.about.textContent = words;
  page.about.className = tone;
}

function describe() {
  const model = models.find((m) => m.id === page.model.value);
  if (!model) return say("Choose a model to talk to.");
  const words = [];
  if (isSimulated(model)) words.push("Simulated: this is no language model, it recites the Greek alphabet.");
  if (model.description) words.push(model.description);
  if (model.context_length) words.push(`Window of ${model.context_length.toLocaleString("en")} tokens.`);
  say(words.join(" "), isSimulated(model) ? "simulated" : "");
}

// ---------------------------------------------------------------- the conversation

function element(kind, className, text = "") {
  const made = document.createElement(kind);
  made.className = className;
  made.textContent = text;
  return made;
}

function showEmpty() {
  page.conversation.replaceChildren(
    element("p", "empty", "Nothing is said yet. What you write goes to the chosen model on your own machines."),
  );
}

function addTurn(mine, text) {
  for (const empty of page.conversation.querySelectorAll(".empty")) empty.remove();
  const turn = element("article", mine ? "turn mine" : "turn");
  if (!mine) turn.append(element("div", "who", page.model.value));
  turn.append(element("div", "text", text));
  page.conversation.append(turn);
  return turn;
}

function nearEnd() {
  const c = page.conversation;
  return c.scrollHeight - c.scrollTop - c.clientHeight < 80;
}

function notice(turn, words) {
  const made = element("p", "notice", words);
  made.setAttribute("role", "alert");
  turn.append(made);
  made.scrollIntoView({ block: "end" });
  return made;
}

async function failure(answer) {
  // Text first: an answer that is not JSON is shown as it came.
  const text = await answer.text();
  const wait = Number(answer.headers.get("retry-after")) || 0;
  const id = answer.headers.get("x-request-id");
  let message = text.slice(0, 500) || `status ${answer.status}`;
  let code = null;
  try {
    const error = JSON.parse(text).error;
    message = error.message;
    code = error.code;
  } catch { /* shown as it came */ }
  return { message, code, wait, id, status: answer.status };
}

function body() {
  const messages = turns.map(({ role, content }) => ({ role, content }));
  const system = page.system.value.trim();
  if (system) messages.unshift({ role: "system", content: system });
  const made = { model: page.model.value, messages, stream: true, stream_options: { include_usage: true } };
  // A field that is left empty is not sent, so that the model's own default holds.
  if (page.temperature.value !== "") made.temperature = Number(page.temperature.value);
  if (page.maxTokens.value !== "") made.max_tokens = Number(page.maxTokens.value);
  return made;
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.replace(/\r$/, "");
      if (data.startsWith("data:")) yield data.slice(5).trim();
    }
  }
}

function figures(run) {
  const words = [];
  const seconds = (run.last - run.first) / 1000;
  const tokens = run.usage ? run.usage.completion_tokens : run.pieces;
  const about = run.usage ? "" : "about ";
  if (run.first && tokens > 1 && seconds > 0) words.push(`${about}${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (run.first) words.push(`first token ${((run.first - run.began) / 1000).toFixed(2)} s`);
  if (run.usage) {
    const cached = run.usage.prompt_tokens_details && run.usage.prompt_tokens_details.cached_tokens;
    words.push(`${run.usage.prompt_tokens}${cached ? ` (${cached} cached)` : ""} in / ${run.usage.completion_tokens} out`);
  } else if (tokens) words.push(`about ${tokens} out`);
  if (run.reason) words.push(run.reason);
  if (run.served && run.served !== run.model) words.push(`answered by ${run.served}`);
  return words.join(" · ");
}

async function answerTo(question) {
  const said = turns; // a conversation that is dropped meanwhile must not get this answer
  said.push({ role: "user", content: question });
  const mine = addTurn(true, question);
  const request = body();
  const turn = addTurn(false, "");
  turn.classList.add("running");
  turn.scrollIntoView({ block: "end" });
  const text = turn.querySelector(".text");
  const run = { began: performance.now(), first: 0, last: 0, pieces: 0, usage: null, reason: "", served: "", model: request.model };
  const control = new AbortController();
  running = control;
  busy(true);
  let content = "";
  let broken = "";
  try {
    const answer = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", ...headers() },
      body: JSON.stringify(request),
      signal: control.signal,
    });
    if (!answer.ok) {
      const found = await failure(answer);
      said.pop();
      turn.classList.remove("running");
      text.remove();
      refused(turn, mine, question, found);
      return;
    }
    run.served = answer.headers.get("x-llmgw-served-by") || "";
    let ended = false;
    for await (const data of events(answer.body)) {
      if (data === "[DONE]") { ended = true; break; }
      const event = JSON.parse(data);
      if (event.error) { broken = event.error.message; break; }
      if (event.usage) run.usage = event.usage;
      const choice = event.choices && event.choices[0];
      if (!choice) continue;
      if (choice.finish_reason) run.reason = choice.finish_reason;
      const piece = choice.delta && choice.delta.content;
      if (!piece) continue;
      const now = performance.now();
      run.first = run.first || now;
      run.last = now;
      run.pieces += 1;
      content += piece;
      const follow = nearEnd();
      text.append(piece);
      if (follow) page.conversation.scrollTop = page.conversation.scrollHeight;
    }
    if (!ended && !broken) broken = "the stream ended before the answer did";
  } catch (error) {
    if (error.name === "AbortError") run.reason = "stopped";
    else broken = "the connection was lost";
  } finally {
    if (running === control) { running = null; busy(false); }
    turn.classList.remove("running");
  }
  if (broken) notice(turn, `Broken off: ${broken}`);
  said.push({ role: "assistant", content });
  const follow = nearEnd();
  turn.append(element("p", "figures", figures(run)));
  if (follow) page.conversation.scrollTop = page.conversation.scrollHeight;
}

function refused(turn, mine, question, found) {
  const id = found.id && !found.message.includes(found.id) ? `request ${found.id}` : "";
  const tail = [found.code, id].filter(Boolean).join(" · ");
  const shown = notice(turn, `${found.message}${tail ? ` (${tail})` : ""}`);
  if (page.question.value === "") page.question.value = question;
  if (found.status === 401) { page.settings.open = true; page.key.focus(); }
  if (!found.wait) return;
  const counter = element("span", "", "");
  shown.append(" ", counter);
  let left = found.wait;
  const tick = () => {
    if (!shown.isConnected) return;
    counter.textContent = left > 0 ? `It may work in ${left} s.` : "Try again now.";
    left -= 1;
    if (left >= -1) setTimeout(tick, 1000);
  };
  tick();
}

// ---------------------------------------------------------------- controls

function busy(is) {
  page.send.hidden = is;
  page.stop.hidden = !is;
}

function grow() {
  page.question.style.setProperty("height", "auto");
  page.question.style.setProperty("height", `${page.question.scrollHeight + 2}px`);
}

page.form.addEventListener("submit", (event) => {
  event.preventDefault();
  const question = page.question.value.trim();
  if (!question || running) return;
  if (!page.model.value) { page.model.focus(); describe(); return; }
  page.question.value = "";
  grow();
  answerTo(question);
});
page.question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    page.form.requestSubmit();
  }
});
page.question.addEventListener("input", grow);
page.stop.addEventListener("click", () => running && running.abort());
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (running) running.abort();
  else page.settings.open = false;
});
page.fresh.addEventListener("click", () => {
  if (running) running.abort();
  turns = [];
  showEmpty();
  page.question.focus();
});
page.model.addEventListener("change", () => {
  sessionStorage.setItem(MODEL, page.model.value);
  describe();
});
page.key.addEventListener("change", () => {
  sessionStorage.setItem(KEY, page.key.value.trim());
  loadModels();
});

takeKeyFromAddress();
showEmpty();
loadModels();
// What is loaded changes by itself; a hidden tab asks nothing.
setInterval(() => { if (!document.hidden && !running) loadModels(); }, 15000);
