// The page of an atlas: all data are in the page itself.
import { startApp } from "../app.js";
import { localSource } from "./source.js";

startApp(localSource(JSON.parse(document.getElementById("atlas").textContent)));
