// An ordinary page: nothing in it is made for programs.

const canvas = document.querySelector("canvas"), paint = canvas.getContext("2d");
[120, 150].forEach((sold, index) => paint.fillRect(20 + index * 80, 100 - sold / 2, 50, sold / 2));

document.querySelector("#open-report").addEventListener("click", () => setTimeout(() => {
  const panel = document.body.appendChild(Object.assign(document.createElement("div"), { id: "report" }));
  const save = panel.appendChild(Object.assign(document.createElement("button"), { textContent: "Save" }));
  save.dataset.action = "save";
  save.addEventListener("click", () => {
    const href = URL.createObjectURL(new Blob(["Sold: 270\n"], { type: "text/plain" }));
    Object.assign(document.createElement("a"), { href, download: "report.txt" }).click();
  });
}, 50));
