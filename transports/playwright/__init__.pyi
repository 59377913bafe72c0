from ._browser import Browser as Browser, BrowserLender as BrowserLender
from ._find import find_browser as find_browser
from ._page_tools import PictureBrowser as PictureBrowser, screenshot_of_url as screenshot_of_url
from ._source import PageSource as PageSource, StorageState as StorageState
from ._sync_page import PageRunner as PageRunner, to_async as to_async
from ._transport import PlaywrightTransport as PlaywrightTransport, WebMcpTransport as WebMcpTransport
