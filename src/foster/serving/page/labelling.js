// The dialog in which photos are labelled one after the other, with the keyboard.

const session = { items: [], position: 0, done: [], candidates: [], isBusy: false };

// A photo that was dropped on the page.
const droppedItem = (photo) => ({
  show: async () => find(".photo", photo.card).src,
  candidates: async () => photo.answer.top,
  label: (label) => store(photo, label),
  undo: () => takeBack(photo),
});

// A photo on the server that waits for a label.
function waitingItem({ photo }) {
  const path = `/to-label/${encodeURIComponent(photo)}`;
  return {
    show: async () => path,
    candidates: async () => (await askJson(`${path}/prediction`)).top,
    label: async (label) => {
      const body = JSON.stringify({ label });
      await ask(path, { method: "PUT", body, headers: { "content-type": "application/json" } });
      return true;
    },
    undo: () => ask(`/feedback/${encodeURIComponent(photo)}`, { method: "DELETE" }),
  };
}

async function startLabelling(items) {
  Object.assign(session, { items, position: 0, done: [], isBusy: false });
  find("#labelling").showModal();
  await showItem();
}

async function showItem() {
  const { items, position, done } = session;
  const item = items[position];
  problemInLabelling("");
  find("#back").disabled = !done.length;
  if (!item) {
    find("#labelling").close();
    announce("All photos are done.");
    return;
  }
  find("#progress").textContent = `${position + 1} of ${items.length}`;
  find("#choices").replaceChildren();
  find("#other-label").value = "";
  session.candidates = [];
  try {
    find("#big").src = await item.show();
    const candidates = await item.candidates();
    if (session.items[session.position] !== item) return; // the user has gone on to another photo
    session.candidates = offered(candidates, 9);
    find("#choices").replaceChildren(...session.candidates.map(choice));
    find("#choices button").focus();
  } catch (problem) {
    problemInLabelling(problem.message);
    find("#other-label").focus();
  }
}

function choice({ label, probability }, index) {
  const row = element("li");
  const button = element("button");
  button.type = "button";
  button.setAttribute("aria-keyshortcuts", String(index + 1));
  button.append(
    element("kbd", "", String(index + 1)),
    element("span", "label", label),
    element("span", "share", probability === null ? "" : percent(probability)),
  );
  button.addEventListener("click", () => giveLabel(label));
  row.append(button);
  return row;
}

async function giveLabel(label) {
  const item = session.items[session.position];
  if (!item || session.isBusy || !label.trim()) return;
  session.isBusy = true;
  try {
    if (!(await item.label(label))) throw new Refused(0, "this class name cannot be used");
    session.done.push({ position: session.position, undo: item.undo });
    session.position += 1;
  } catch (problem) {
    problemInLabelling(`Not stored: ${problem.message}`);
    return;
  } finally {
    session.isBusy = false;
  }
  await showItem();
}

// Back to the last photo that was labelled or skipped.
async function undoLast() {
  if (session.isBusy || !session.done.length) return;
  session.isBusy = true;
  const { position, undo } = session.done.pop();
  try {
    await undo();
  } catch { /* it was removed already */ }
  session.isBusy = false;
  session.position = position;
  await showItem();
}

async function skipItem() {
  if (session.isBusy) return;
  session.done.push({ position: session.position, undo: async () => {} });
  session.position += 1;
  await showItem();
}

function problemInLabelling(text) {
  find("#labelling-problem").textContent = text;
  find("#labelling-problem").hidden = !text;
}

function keyInLabelling(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
  const number = Number(event.key);
  const actions = { s: skipItem, u: undoLast, n: () => find("#other-label").focus() };
  const action = session.candidates[number - 1]
    ? () => giveLabel(session.candidates[number - 1].label)
    : actions[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
}

function listenToLabelling() {
  const dialog = find("#labelling");
  find("#big").addEventListener("load", ({ target }) => target.classList.toggle("small", target.naturalWidth < 128));
  dialog.addEventListener("keydown", keyInLabelling);
  dialog.addEventListener("close", () => refreshInfo().then(showAllBars).catch(() => {}));
  find("#leave").addEventListener("click", () => dialog.close());
  find("#skip").addEventListener("click", skipItem);
  find("#back").addEventListener("click", undoLast);
  find("#other").addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = find("#other-label").value.trim();
    if (typed) remember(typed);
    giveLabel(typed);
  });
  find("#label-dropped").addEventListener("click", () => startLabelling(unlabelled().map(droppedItem)));
  find("#label-waiting").addEventListener("click", async () => {
    const { photos } = await askJson("/to-label");
    if (photos.length) await startLabelling(photos.map(waitingItem));
  });
}

listen();
listenToLabelling();
start();
