"use strict";
// Requests to the server, and small helpers.

const find = (selector, root = document) => root.querySelector(selector);

class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

// Sends a request. Throws an error with the reason if the server refuses; retries for a while if its queue is full.
async function ask(path, options = {}) {
  for (let attempt = 0; ; attempt += 1) {
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Refused(0, "the server does not answer");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      location.reload(); // the server then asks for the token
      throw new Refused(401, "a token is needed");
    }
    if (response.status === 429 && attempt < 20) {
      await new Promise((done) => setTimeout(done, 300 + 700 * Math.random()));
      continue;
    }
    let reason = response.statusText;
    try {
      reason = (await response.json()).error ?? reason;
    } catch { /* not JSON: keep the status text */ }
    throw new Refused(response.status, reason);
  }
}

const askJson = async (path, options) => (await ask(path, options)).json();

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// For screen readers.
function announce(text) {
  find("#live").textContent = text;
}
