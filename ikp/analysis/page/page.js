"use strict";
// Zoom and hover of figures of warps: all panels of a figure show the same part of their interval.
for (const figure of document.querySelectorAll("figure.lanes")) {
  const panels = [...figure.querySelectorAll(".panel")], told = figure.querySelector(".told");
  let from = 0, part = 1, at = null, moved = false;
  const words = (ns) => {
    for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]])
      if (Math.abs(ns) >= scale) return `${(ns / scale).toFixed(2)} ${unit}`;
    return `${ns.toFixed(0)} ns`;
  };
  const keys = document.createElement("div"), shown = document.createElement("span");
  const show = (begin, size) => {
    part = Math.min(1, Math.max(1e-5, size));
    from = Math.min(1 - part, Math.max(0, begin));
    for (const panel of panels) {
      const inner = panel.querySelector(".zoom");
      inner.setAttribute("x", `${-100 * from / part}%`);
      inner.setAttribute("width", `${100 / part}%`);
    }
    shown.textContent = panels.map(({ dataset: { begin: zero, span } }) => {
      const low = +zero + from * span;
      return `${words(low)} to ${words(low + part * span)}`;
    }).join("; ");
    figure.classList.toggle("zoomed", part < 1);
  };
  const zoom = (by, around) => show(from + around * part * (1 - by), part * by);
  const share = (panel, event) => {
    const box = panel.getBoundingClientRect();
    return (event.clientX - box.left) / box.width;
  };
  keys.className = "keys";
  for (const [text, label, act] of [
    ["+", "zoom in", () => zoom(0.5, 0.5)], ["\u2212", "zoom out", () => zoom(2, 0.5)],
    ["\u2190", "earlier", () => show(from - part / 4, part)],
    ["\u2192", "later", () => show(from + part / 4, part)], ["all", "all", () => show(0, 1)],
  ]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", label);
    button.addEventListener("click", act);
    keys.append(button);
  }
  keys.append(shown);
  figure.insertBefore(keys, told);
  for (const panel of panels) {
    panel.setAttribute("tabindex", "0");
    panel.addEventListener("pointerover", (event) => {
      const rect = event.target.closest("rect"), group = rect && rect.closest("g");
      const title = rect && (group || rect).querySelector(":scope > title");
      told.textContent = title ? title.textContent : "";
    });
    panel.addEventListener("pointerdown", (event) => {
      at = event.clientX;
      moved = false;
    });
    panel.addEventListener("pointermove", (event) => {
      if (at === null || !event.buttons) return;
      const by = (at - event.clientX) / panel.getBoundingClientRect().width;
      moved ||= Math.abs(by) > 0.005;
      if (moved && part < 1) {
        panel.setPointerCapture(event.pointerId);
        show(from + by * part, part);
        at = event.clientX;
      }
    });
    panel.addEventListener("pointerup", () => { at = null; });
    panel.addEventListener("dblclick", (event) => zoom(0.25, share(panel, event)));
    panel.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, share(panel, event));
    }, { passive: false });
    panel.addEventListener("keydown", (event) => {
      const act = { "+": () => zoom(0.5, 0.5), "-": () => zoom(2, 0.5), "0": () => show(0, 1),
        ArrowLeft: () => show(from - part / 4, part), ArrowRight: () => show(from + part / 4, part) };
      if (!(event.key in act) || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act[event.key]();
    });
  }
  show(0, 1);
}
