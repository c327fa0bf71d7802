// The service worker: keeps the files of the page, so that the next visit loads none of them.
// The list is filled in when the page is put together (tpf_client/page_files.py).
const FILES = JSON.parse("@files@");
const KEPT = "page";
const scope = self.registration.scope;
const SETTINGS = new URL("page.json", scope).href;
const known = new Set(FILES.map((each) => new URL(each, scope).href));

/** What the server says of itself: the newest, or else what it last said. */
async function settings() {
  const cache = await caches.open(`${KEPT} settings`);
  const response = await fetch(SETTINGS).catch(() => Response.error());
  if (response.ok) await cache.put(SETTINGS, response.clone());
  return response.ok ? response : (await cache.match(SETTINGS)) ?? response;
}

self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(KEPT);
    // What the page has loaded meanwhile comes out of the cache of HTTP.
    await Promise.all(FILES.map(async (each) => {
      const address = new URL(each, scope).href;
      const named = each && !each.startsWith("?"); // its name tells its content
      if (named && (await cache.match(address))) return;
      const response = await fetch(address, named ? {} : { cache: "no-cache" });
      if (!response.ok) throw new Error(`${address}: ${response.status}`);
      await cache.put(address, response);
    }));
    await settings(); // which the page asked for before this worker was there
    await self.skipWaiting();
  })());
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(KEPT);
    for (const old of await cache.keys()) {
      if (old.url.startsWith(scope) && !known.has(old.url)) await cache.delete(old);
    }
    await self.clients.claim();
  })());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET") return;
  const address = new URL(request.url);
  // The board alone may be in frames, which its head says: it is another response.
  address.search = address.searchParams.has("embed") && address.href.startsWith(`${scope}?`) ? "?embed" : "";
  address.hash = "";
  if (known.has(address.href)) {
    event.respondWith((async () => {
      const cache = await caches.open(KEPT);
      return (await cache.match(address.href)) ?? fetch(request);
    })());
  } else if (address.href === SETTINGS) event.respondWith(settings());
});
