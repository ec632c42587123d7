// Photos that were dropped, pasted, chosen or taken, and their cards.

const MOST_REQUESTS = 4; // at a time
const ENDINGS = /\.(jpe?g|jfif|png|webp|gif|bmp|tiff?|ppm|pgm|avif|jp2|hei[cf])$/i;

const MOST_OFFERED = 3;

const state = { info: null, classes: [], photos: [], queue: [], active: 0, typed: [], collected: [] };

// Loads the facts of the server and its classes; shows the reason if that fails.
async function start() {
  try {
    await refreshInfo();
  } catch (problem) {
    find("#problem").hidden = false;
    find("#problem").textContent = problem.message;
  }
}

async function refreshInfo() {
  const [info, known] = await Promise.all([askJson("/info"), askJson("/classes")]);
  state.info = info;
  state.classes = known.classes;
  const doubt = info.is_calibrated ? "" : " · percentages not calibrated";
  find("#bundle").textContent = `${info.bundle.name} · ${plural(info.num_classes, "class", "classes")}${doubt}`;
  find("#bundle").title = `version ${info.bundle.version}`;
  find("#promise").textContent = info.takes_feedback
    ? "Photos are kept only if you give them a class."
    : "Photos are classified and not kept.";
  const problem = find("#problem");
  problem.hidden = !info.problem;
  if (info.problem) problem.textContent = `${info.problem[0].toUpperCase()}${info.problem.slice(1)}.`;
  find("#waiting").hidden = !info.num_to_label;
  find("#waiting-text").textContent = `${plural(info.num_to_label, "photo waits", "photos wait")} for a label.`;
  await refreshCollected();
}

// Shows how many photos wait for the next learn; their classes can be chosen like known ones.
async function refreshCollected() {
  let counts = { num_photos: 0, classes: {} };
  if (state.info.takes_feedback) counts = await askJson("/feedback");
  const named = Object.entries(counts.classes);
  const shown = named.slice(0, 6).map(([name, count]) => `${name} (${count})`).join(", ");
  find("#collected").hidden = !counts.num_photos;
  find("#collected").textContent =
    `${plural(counts.num_photos, "photo")} for the next learn: ${shown}${named.length > 6 ? ", …" : ""}.`;
  state.collected = Object.keys(counts.classes).filter((name) => !state.classes.includes(name));
  const names = [...new Set([...state.classes, ...Object.keys(counts.classes)])];
  find("#classes").replaceChildren(...names.map((name) => {
    const option = element("option");
    option.value = name;
    return option;
  }));
}

// The top classes of an answer, followed by classes that were typed here or are new in the feedback folder; at most
// `most` of them together.
function offered(top, most) {
  const named = [...new Set([...state.typed, ...state.collected])].slice(0, MOST_OFFERED);
  const more = named.filter((name) => !top.slice(0, most - MOST_OFFERED).some(({ label }) => label === name));
  const first = top.slice(0, most - more.length);
  return [...first, ...more.map((label) => ({ label, probability: null }))];
}

// Offers a typed class for the next photos.
function remember(label) {
  state.typed = [label, ...state.typed.filter((name) => name !== label)].slice(0, MOST_OFFERED);
}

async function addPhotos(files) {
  const isPhoto = (file) => file.type.startsWith("image/") || ENDINGS.test(file.name);
  const images = [...files].filter(isPhoto);
  const others = [...files].filter((file) => !isPhoto(file)).map((file) => file.name);
  const more = others.length > 3 ? ` and ${others.length - 3} more` : "";
  find("#no-photos").hidden = !others.length;
  find("#no-photos").textContent = others.length ? `Not a photo: ${others.slice(0, 3).join(", ")}${more}.` : "";
  if (!images.length) return;
  if (!state.info) await start(); // dropped before the server has answered
  if (!state.info) return;
  const cards = find("#cards");
  for (const file of images.reverse()) {
    const photo = { file, card: makeCard(file), answer: null, label: null, stored: null };
    wire(photo);
    state.photos.unshift(photo);
    state.queue.unshift(photo);
    cards.prepend(photo.card);
  }
  document.body.classList.add("many");
  announce(`${plural(images.length, "photo")} added.`);
  showCounts();
  sendNext();
}

function makeCard(file) {
  const card = find("#card").content.cloneNode(true).firstElementChild;
  const image = find(".photo", card);
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 128));
  image.addEventListener("error", () => image.replaceWith(element("p", "quiet", "no preview")));
  image.src = URL.createObjectURL(file);
  image.alt = `Photo ${file.name}`;
  find(".name", card).textContent = file.name;
  return card;
}

function sendNext() {
  while (state.active < MOST_REQUESTS && state.queue.length) {
    state.active += 1;
    predict(state.queue.shift()).finally(() => {
      state.active -= 1;
      showCounts();
      sendNext();
      if (!state.active) announceAnswers();
    });
  }
}

// Announces the answer of one photo, or the counts of many.
function announceAnswers() {
  const [first] = state.photos;
  if (!first) return;
  const verdict = find(".verdict", first.card).textContent;
  const sure = first.answer && !first.answer.is_unknown ? `, ${percent(first.answer.confidence)}` : "";
  announce(state.photos.length === 1 ? `${verdict}${sure}.` : `Answered: ${find("#counts").textContent}.`);
}

async function predict(photo) {
  const { file, card } = photo;
  try {
    if (file.size > state.info.limits.bytes) {
      throw new Refused(413, `it is larger than ${Math.floor(state.info.limits.bytes / 2 ** 20)} MiB`);
    }
    const answer = await askJson("/predict?top=9", { method: "POST", body: file });
    photo.answer = answer.predictions[0];
    showAnswer(photo);
    if (answer.bundle.version !== state.info.bundle.version) await refreshInfo(); // another bundle is in use now
  } catch (problem) {
    const verdict = find(".verdict", card);
    verdict.textContent = `No answer: ${problem.message.replace(/^no image can be read: image: /, "")}`;
    verdict.classList.add("failed");
  }
}

function showAnswer(photo) {
  const { answer, card } = photo;
  const verdict = find(".verdict", card);
  const why = find(".why", card);
  verdict.classList.toggle("unknown", answer.is_unknown);
  verdict.textContent = answer.is_unknown ? "I do not know this" : answer.label;
  why.hidden = !answer.is_unknown;
  const lack = state.info.unknown_below === "auto" ? "it differs too much from the known classes" : "its confidence is too low";
  const help = state.info.takes_feedback ? " Choose its class, or name it." : "";
  why.textContent = `The best class is ${answer.top[0].label}, but ${lack}.${help}`;
  showBars(photo);
  find(".actions", card).hidden = false;
  find(".right", card).hidden = !state.info.takes_feedback || answer.is_unknown;
  find(".wrong", card).hidden = !state.info.takes_feedback;
  find(".wrong", card).textContent = answer.is_unknown ? "Name it" : "Wrong?";
}

function showBars(photo) {
  const top = photo.answer.top.filter(({ probability }, index) => index < 2 || (index < 5 && probability >= 0.001));
  const bars = state.info.takes_feedback ? offered(top, top.length + MOST_OFFERED) : top;
  find(".bars", photo.card).replaceChildren(...bars.map((candidate) => bar(candidate, photo)));
}

// A class with its probability; if the server takes feedback, a click stores the photo under this class.
function bar({ label, probability }, photo) {
  const row = element("li");
  const box = element(state.info.takes_feedback ? "button" : "div", "bar");
  box.append(element("span", "label", label), element("span", "share", probability === null ? "" : percent(probability)));
  if (probability !== null) {
    const track = element("span", "track");
    const fill = element("span", "fill");
    track.setAttribute("aria-hidden", "true");
    fill.style.width = `${Math.max(0.5, 100 * probability)}%`;
    track.append(fill);
    box.append(track);
  }
  if (state.info.takes_feedback) {
    box.type = "button";
    box.title = `Store as ${label}`;
    box.setAttribute("aria-pressed", String(photo.stored?.label === label));
    box.addEventListener("click", () => store(photo, label));
  }
  row.append(box);
  return row;
}

// Buttons of a card.
function wire(photo) {
  const { card } = photo;
  const form = find(".correct", card);
  const open = (isOpen) => {
    form.hidden = !isOpen;
    find(".wrong", card).setAttribute("aria-expanded", String(isOpen));
    find(isOpen ? "input.label" : ".wrong", card).focus();
  };
  find(".where", card).addEventListener("click", () => toggleHeat(photo));
  find(".right", card).addEventListener("click", () => store(photo, photo.answer.label));
  find(".wrong", card).addEventListener("click", () => open(form.hidden));
  find(".cancel", card).addEventListener("click", () => open(false));
  form.addEventListener("keydown", (event) => event.key === "Escape" && open(false));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    storeTyped(photo, find("input.label", card).value);
  });
  find(".undo", card).addEventListener("click", () => takeBack(photo));
}

async function storeTyped(photo, label) {
  if (!(await store(photo, label))) return;
  remember(photo.stored.label);
  showAllBars();
}

function showAllBars() {
  for (const photo of state.photos) if (photo.answer) showBars(photo);
}

// Stores a photo with its class; true if that worked.
async function store(photo, label) {
  const { card, file } = photo;
  const form = new FormData();
  form.append("label", label);
  form.append("file", file, file.name);
  try {
    photo.stored = await askJson("/feedback", { method: "POST", body: form });
  } catch (problem) {
    find(".correct", card).hidden = false;
    find(".hint", card).textContent = `Not stored: ${problem.message}`;
    announce(`Not stored: ${problem.message}`);
    return false;
  }
  find(".hint", card).textContent = "";
  find(".correct", card).hidden = true;
  find(".actions", card).hidden = true;
  find(".stored", card).hidden = false;
  find(".stored span", card).textContent = `Stored as ${photo.stored.label}`;
  showBars(photo);
  find(".undo", card).focus();
  announce(`Stored as ${photo.stored.label}.`);
  showCounts();
  await refreshCollected();
  return true;
}

async function takeBack(photo) {
  const { card } = photo;
  try {
    await ask(`/feedback/${photo.stored.photo}`, { method: "DELETE" });
  } catch (problem) {
    if (problem.status !== 404) { // somebody else has taken it away already
      announce(`Not undone: ${problem.message}`);
      return;
    }
  }
  photo.stored = null;
  showBars(photo);
  find(".stored", card).hidden = true;
  find(".actions", card).hidden = false;
  find(".wrong", card).focus();
  announce("No longer stored.");
  showCounts();
  await refreshCollected();
}

async function toggleHeat({ card, file, answer }) {
  const button = find(".where", card);
  const heat = find(".heat", card);
  const isShown = button.getAttribute("aria-pressed") === "true";
  if (!isShown && !heat.src) {
    button.disabled = true;
    try {
      const label = encodeURIComponent(answer.top[0].label);
      const response = await ask(`/explain?label=${label}`, { method: "POST", body: file });
      heat.src = URL.createObjectURL(await response.blob());
      await heat.decode();
    } catch (problem) {
      announce(`No map: ${problem.message}`);
      return;
    } finally {
      button.disabled = false;
    }
  }
  const photo = find(".photo", card);
  heat.style.width = `${fitted(photo).width}px`;
  heat.style.height = `${fitted(photo).height}px`;
  heat.alt = `Bright where the photo shows evidence for ${answer.top[0].label}`;
  heat.hidden = isShown;
  button.setAttribute("aria-pressed", String(!isShown));
}

// The size at which a photo is drawn inside its box.
function fitted(image) {
  const scale = Math.min(image.clientWidth / image.naturalWidth, image.clientHeight / image.naturalHeight);
  return { width: scale * image.naturalWidth, height: scale * image.naturalHeight };
}

function showCounts() {
  const { photos, queue, active } = state;
  find("#tools").hidden = !photos.length;
  const left = queue.length + active;
  const unknown = photos.filter((photo) => photo.answer?.is_unknown).length;
  const parts = [plural(photos.length, "photo")];
  if (left) parts.push(`${left} in progress`);
  if (unknown) parts.push(`${unknown} unknown`);
  find("#counts").textContent = parts.join(" · ");
  find("#label-dropped").hidden = !state.info.takes_feedback || unlabelled().length < 2;
}

const unlabelled = () => state.photos.filter((photo) => photo.answer && !photo.stored);

// A dropped folder stands for all files below it.
async function filesOf(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const found = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      found.push(await new Promise((done, failed) => entry.file(done, failed)));
      return;
    }
    const reader = entry.createReader();
    for (let some; (some = await new Promise((done, failed) => reader.readEntries(done, failed))).length; ) {
      for (const inner of some) await walk(inner);
    }
  };
  for (const entry of entries) await walk(entry);
  return found.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

function listen() {
  for (const [button, input] of [["#choose", "#files"], ["#choose-folder", "#folder"], ["#take", "#camera"]]) {
    find(button).addEventListener("click", () => find(input).click());
    find(input).addEventListener("change", (event) => {
      addPhotos(event.target.files);
      event.target.value = "";
    });
  }
  let depth = 0; // enter and leave come for every element below the pointer
  const drag = (change) => {
    depth = change === null ? 0 : depth + change;
    document.body.classList.toggle("dragging", depth > 0);
  };
  addEventListener("dragenter", (event) => { event.preventDefault(); drag(1); });
  addEventListener("dragleave", () => drag(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", async (event) => {
    event.preventDefault();
    drag(null);
    addPhotos(await filesOf(event.dataTransfer));
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) addPhotos([...event.clipboardData.files]);
  });
  find("#clear").addEventListener("click", () => {
    for (const { card } of state.photos) for (const image of card.querySelectorAll("img")) URL.revokeObjectURL(image.src);
    state.photos = [];
    state.queue = [];
    find("#cards").replaceChildren();
    find("#no-photos").hidden = true;
    document.body.classList.remove("many");
    showCounts();
    find("#choose").focus();
  });
}
