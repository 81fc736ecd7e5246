// Opens a trace in Perfetto's page, which asks for it by messages: the file stays in this browser.
const PERFETTO = "https://ui.perfetto.dev";

async function openTrace(link) {
  const ui = window.open(PERFETTO);
  const answer = await fetch(link.href);
  if (!ui || !answer.ok) throw new Error(`${link.href}: ${ui ? answer.status : "no window"}`);
  const buffer = await answer.arrayBuffer();
  const asking = setInterval(() => ui.postMessage("PING", PERFETTO), 100);
  window.addEventListener("message", function ready(event) {
    if (event.source !== ui || event.origin !== PERFETTO || event.data !== "PONG") return;
    clearInterval(asking);
    window.removeEventListener("message", ready);
    const title = link.pathname.split("/").pop();
    ui.postMessage({ perfetto: { buffer, title, fileName: title } }, PERFETTO);
  });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a.open-trace");
  if (!link || location.protocol === "file:") return; // files can't be fetched: the link downloads
  event.preventDefault();
  openTrace(link).catch((error) => alert(error));
});
