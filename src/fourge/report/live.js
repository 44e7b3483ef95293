// Asks its own server for the part that changes, and puts it in place: what the reader opened,
// scrolled to or stands on stays.
"use strict";
const EVERY_MS = 2000;
let seen = "";

async function update() {
  const answer = await fetch("main?seen=" + seen, { cache: "no-store" });
  if (answer.status !== 200) return;
  seen = answer.headers.get("X-Seen");
  const main = document.getElementById("main");
  const open = new Set([...main.querySelectorAll("details[open]")].map((each) => each.id));
  const focused = document.activeElement?.closest("details")?.id;
  const inside = [...main.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  main.innerHTML = await answer.text();
  for (const each of main.querySelectorAll("details")) each.open = open.has(each.id);
  main.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = inside[at] || 0; });
  if (focused) document.getElementById(focused)?.querySelector("summary")?.focus({ preventScroll: true });
}

async function follow() {
  const footer = document.querySelector("footer");
  const words = footer.textContent;
  for (;;) {
    await new Promise((wake) => setTimeout(wake, EVERY_MS));
    try {
      await update();
      footer.textContent = words + " Following the run.";
    } catch {
      footer.textContent = words + " The server is gone; this is what it last said.";
    }
  }
}
follow();
