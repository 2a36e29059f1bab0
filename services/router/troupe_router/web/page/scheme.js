// Sets light or dark before the first paint, so that the page never flashes in the other one.
(() => {
  let wish = "auto";
  try {
    wish = localStorage.getItem("mantine-color-scheme-value") || "auto";
  } catch {
    // Storage may be forbidden; the system's wish holds then.
  }
  const isDark = wish === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : wish === "dark";
  document.documentElement.setAttribute("data-mantine-color-scheme", isDark ? "dark" : "light");
})();
