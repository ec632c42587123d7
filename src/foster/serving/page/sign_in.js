"use strict";
// The token goes to the server once; from then on the browser has a cookie that opens this server alone.

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
  } catch { /* the reason stands above */ }
  problem.textContent = reason;
  problem.hidden = false;
  document.querySelector("#token").select();
});
