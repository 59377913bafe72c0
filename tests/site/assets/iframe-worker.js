// A page that was opened as a file may start no worker. There, the script of the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      const script = new URL(url, location.href).href.replaceAll('"', "%22");
      const answer = "const frame = frameElement; " + // as from a worker, an answer comes in a turn of its own
        "postMessage = (data) => setTimeout(() => frame.dispatchEvent(new MessageEvent('message', { data })))";
      this.#frame.hidden = true;
      this.#frame.srcdoc = `<script>${answer}</script><script src="${script}"></script>`;
      this.#frame.addEventListener("message", ({ data }) => {
        const event = new MessageEvent("message", { data });
        this.onmessage?.(event);
        this.dispatchEvent(event);
      });
      this.#ready = new Promise((resolve) => this.#frame.addEventListener("load", resolve, { once: true }));
      document.documentElement.append(this.#frame);
    }

    async postMessage(data) {
      const copy = structuredClone(data); // a worker has its own, which it may change
      await this.#ready;
      setTimeout(() => this.#frame.contentWindow?.dispatchEvent(new MessageEvent("message", { data: copy })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
