// Theme: light, dark, or the theme of the system. A classic script in the head, so that the theme is set before the first paint.
(() => {
  const KEY = 'abp-gallery-theme';
  const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };
  const root = document.documentElement;
  let stored = null;
  try {
    stored = localStorage.getItem(KEY);
  } catch {
    // Storage may be forbidden; then the choice lasts as long as the page.
  }
  root.dataset.theme = stored in NEXT ? stored : 'auto';

  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const show = () => {
      const theme = root.dataset.theme;
      button.textContent = { auto: '◐', light: '☀', dark: '☾' }[theme];
      button.ariaLabel = `Theme: ${theme}; change to ${NEXT[theme]}`;
      button.title = button.ariaLabel;
    };
    button.addEventListener('click', () => {
      root.dataset.theme = NEXT[root.dataset.theme];
      try {
        localStorage.setItem(KEY, root.dataset.theme);
      } catch {
        // As above.
      }
      show();
    });
    show();
  });
})();
