// Leaflet by the name under which its plugins know it.
import L from "leaflet/dist/leaflet-src.js";

export { L };
