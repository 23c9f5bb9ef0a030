"""What runs on other machines: images, alert rules, manifests, the wheel of the light install; and the docs' site."""
