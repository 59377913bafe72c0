sample(
  "progress",
  () => ["process.largefile", "crawl.pages"].map((name) => ({ name, available: true })),
  {
    "process.largefile": async ({ content }, { progressToken }) => {
      if (typeof content !== "string") throw refused("INVALID_PARAMS", "content is not text");
      const chunks = content.match(/.{1,1000}/g) ?? [];
      let result = "";
      for (const [index, chunk] of chunks.entries()) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        result += chunk.toUpperCase();
        if (progressToken && window.__abp_progress) {
          window.__abp_progress({
            operationId: progressToken,
            progress: index + 1,
            total: chunks.length,
            percentage: Math.round(((index + 1) / chunks.length) * 100),
            status: `Processing chunk ${index + 1} of ${chunks.length}`,
            stage: "processing",
          });
        }
      }
      return { result, chunksProcessed: chunks.length };
    },
    // as the guide for extensions reports its progress
    "crawl.pages": async ({ urls }) => {
      if (!Array.isArray(urls)) throw refused("INVALID_PARAMS", "urls is not a list");
      for (const [index, url] of urls.entries()) {
        const step = { operationId: "crawl", progress: index, total: urls.length, status: `Crawling ${url}` };
        if (typeof window.__abpOnProgress === "function") window.__abpOnProgress(step);
      }
      return { pages: urls.map((url) => ({ url, title: "A page" })) };
    },
  },
  { progress: true },
);
