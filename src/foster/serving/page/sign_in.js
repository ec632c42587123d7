"use strict";
// Sends the token to the server once; the server answers with a cookie.

document.querySelector("#form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = document.querySelector("#problem");
  problem.hidden = true;
  const body = JSON.stringify({ token: document.querySelector("#token").value.trim() });
  let reason = "The server does not answer.";
  try {
    const response = await fetch("/session", { method: "POST", body, headers: { "content-type": "application/json" } });
    if (response.ok) {
      location.reload();
      return;
    }
    reason = response.status === 401 ? "This is not the token." : response.statusText;
  } catch { /* no connection */ }
  problem.textContent = reason;
  problem.hidden = false;
  document.querySelector("#token").select();
});
