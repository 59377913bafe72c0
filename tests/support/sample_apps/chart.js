sample("chart", () => [{ name: "render.chart", available: true }], {
  "render.chart": async ({ type, data, options = {} }) => {
    if (!["bar", "line", "pie"].includes(type)) throw refused("INVALID_PARAMS", "type is bar, line or pie");
    if (!Array.isArray(data?.values)) throw refused("INVALID_PARAMS", "data.values is not a list");
    const { width = 800, height = 400 } = options;
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const drawing = canvas.getContext("2d");
    data.values.forEach((value, index) => drawing.fillRect(index * 20, height - value, 16, value));
    await new Promise((resolve) => setTimeout(resolve, 100));
    const content = canvas.toDataURL("image/png").split(",")[1];
    const size = atob(content).length;
    const image = { content, mimeType: "image/png", encoding: "base64", size, filename: `${type}-chart.png` };
    return { image, width, height };
  },
});
